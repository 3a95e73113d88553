# shellcheck shell=sh
# Source, identity and cache of lab kernels.

cache=${PILLION_LAB_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pillion/lab-kernel}

fail() {
	echo "lab-kernel: $1" >&2
	exit "${2:-1}"
}

# Prints the path of the newest installed source package of Debian.
default_source() {
	newest=$(ls /usr/src/linux-source-6.*.tar.xz 2>/dev/null | sort -V | tail -n 1)
	[ -n "$newest" ] || fail "no kernel source in /usr/src; install Debian's package
linux-source-6.12 (scripts/setup lab-kernel installs it), or give a source with --source"
	echo "$newest"
}

is_source() {
	[ -f "$1/Makefile" ] && [ -f "$1/arch/um/Kconfig" ]
}

check_tools() {
	missing=
	while read -r tool package; do
		command -v "$tool" >/dev/null 2>&1 || missing="$missing $package"
	done <<-END
		cc build-essential
		make build-essential
		patch patch
		flex flex
		bison bison
		bc bc
		pahole dwarves
		xz xz-utils
		cpio cpio
		setarch util-linux
	END
	echo '#include <gelf.h>' | cc -E - >/dev/null 2>&1 || missing="$missing libelf-dev"
	[ -z "$missing" ] || fail "these Debian packages are missing:$missing
scripts/setup lab-kernel installs them, or: apt-get install$missing"
}

# Prints the kernel options for the chosen kind.
configuration() {
	cat "$here/config"
	[ -z "$sanitize" ] || cat "$here/sanitizers"
	[ -z "$ticks" ] || echo "CONFIG_HZ=$ticks"
}

# Prints all inputs of a build, one per line.
identity() {
	if [ -d "$1" ]; then
		echo "source $(make -s -C "$1" kernelversion) $(cd "$1" && find . -type f -not -path './.git/*' -printf '%P %s %T@\n' |
			sort | sha256sum | cut -c 1-16)"
	else
		echo "source ${1##*/} $(stat -L -c '%s %Y' "$1")"
	fi
	for patch in "$here"/patches/*.patch; do
		echo "patch ${patch##*/} $(sha256sum <"$patch" | cut -c 1-16)"
	done
	echo "config $(configuration | sha256sum | cut -c 1-16)"
	echo "compiler $(cc --version | head -n 1)"
	echo "pahole $(pahole --version)"
}

# unpack SOURCE FOLDER: copies or extracts the unmodified source to FOLDER.
unpack() {
	mkdir "$2"
	if [ -d "$1" ]; then
		cp -a "$1/." "$2"
		make -s -C "$2" ARCH=um mrproper >/dev/null 2>&1
	else
		tar -x -f "$1" -C "$2" --strip-components 1 || fail "$1 is not a tarball, or is incomplete" 2
	fi
	is_source "$2" || fail "$1 is not a Linux source: arch/um/Kconfig is missing" 2
}
