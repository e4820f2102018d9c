#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`check` in a folder that no other user can enter, such as one in /root.

usage: enter.py SOURCE-ROOT
"""

import os
import shutil
import subprocess
import sys
import tempfile

# In place of the tests: a command of another user's in the folder of the build.
STEP = """#!/bin/sh
exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '"$0/build-check/program"' "$PWD"
"""


def script(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def main():
    root = sys.argv[1]
    if os.geteuid() != 0:
        print("only root runs tests as another user")
        return 77
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        print("there are no mount namespaces")
        return 77
    # This may be run by a `check` that has entered /mnt itself.
    environment = {k: v for k, v in os.environ.items() if k != "VIADUCT_CHECK_ENTERED"}
    with tempfile.TemporaryDirectory() as closed:
        tree = f"{closed}/tree"
        for folder in "scripts", "build-check":
            os.makedirs(f"{tree}/{folder}")
        shutil.copy(f"{root}/check", tree)
        shutil.copy(f"{root}/scripts/begin.sh", f"{tree}/scripts")
        script(f"{tree}/scripts/deps.sh", "#!/bin/sh\n")
        script(f"{tree}/scripts/check.sh", STEP)
        script(f"{tree}/scripts/tally.py", "")
        script(f"{tree}/build-check/program", "#!/bin/sh\necho entered\n")
        for mode, said in (0o700, True), (0o755, False):
            os.chmod(closed, mode)
            run = subprocess.run([f"{tree}/check"], env=environment, capture_output=True,
                                 text=True, check=False)
            output = run.stdout + run.stderr
            if run.returncode or "entered" not in output:
                print(f"mode {mode:o}: check ended with {run.returncode}:\n{output}")
                return 1
            if ("as /mnt" in output) != said:
                print(f"mode {mode:o}: wrongly told:\n{output}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
