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

# What takes too long for that, in parts of less than two hours each, which scripts/check-long.sh lists:
# make check-long PARTS="events-0 volume". All of them without PARTS.
check-long: deps-build
	@scripts/deps.sh check || echo "check-long: what is missing is skipped"
	@scripts/deps.sh long || echo "check-long: what is missing is skipped"
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	@ninja -C $(BUILD)
	@scripts/check-long.sh $(BUILD) $(PARTS)

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
