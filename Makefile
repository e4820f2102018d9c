# SPDX-License-Identifier: Apache-2.0
# Short names for the usual jobs; the build itself is Meson's.

BUILD ?= build

.PHONY: build check check-long demo install clean deps-build deps-check

build: deps-build
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	@ninja -C $(BUILD) programs

# Everything that decides whether a change is right; sets nothing on the machine.
check:
	@./check

# What takes too long for that: Meson's suite `long`; connections between hosts by several seeds, with
# loss, with all faults, over IPv6, without rights; random operations by SEEDS seeds; each fuzzer for a
# minute; the soak test; and Debian 12, 13 and sid, as root. Eight hours.
check-long: deps-build
	@scripts/deps.sh check || echo "check-long: what is missing is skipped"
	@scripts/deps.sh long || echo "check-long: what is missing is skipped"
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	@ninja -C $(BUILD)
	@scripts/check-long.sh $(BUILD)

# Redis on TCP, on AF_UNIX and under Viaduct: about a minute.
demo:
	@./demo $(BUILD)

install: build
	@ninja -C $(BUILD) installed
	@meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-check

deps-build:
	@scripts/deps.sh build

deps-check: deps-build
	@scripts/deps.sh check
