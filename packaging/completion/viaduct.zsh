#compdef viaduct
# SPDX-License-Identifier: Apache-2.0
# Completion of viaduct(1) for zsh. Commands, options and values come from --help, so that
# they are those of the command that is there.

# The help of $viaduct_command or of one of its subcommands, a line an element.
_viaduct_help() {
	viaduct_lines=("${(@f)$(_call_program viaduct ${(q)viaduct_command} $@ --help 2>/dev/null)}")
}

_viaduct_commands() {
	local -a viaduct_lines found match mbegin mend
	local line
	_viaduct_help
	for line in $viaduct_lines; do
		[[ $line =~ '^  ([a-z][a-z-]*)  +(.*)$' ]] && found+=("$match[1]:$match[2]")
	done
	_describe -t commands 'viaduct command' found
}

# One option, as _arguments wants it: name, text, and what its argument may be.
_viaduct_spec() {
	local option=$1 argument=$2 text=${3//(#m)[\[\]:\\]/\\$MATCH} values match mbegin mend
	case $option:$argument in
	*:) reply="${option}[$text]"; return ;;
	--log:*) values='(off error info debug debug\:stderr)' ;;
	--placement:*) values='(two one free)' ;;
	--ring-max:*) values='(16K 256K 4M)' ;;
	*:(FILE|PATH|DIR|FOLDER)) values=_files ;;
	*)
		if [[ $3 =~ '^of ([a-z0-9, -]+)' ]]; then
			values="_sequence compadd - ${match[1]//,/ }"
		else
			values=' '
		fi
		;;
	esac
	reply="${option}[$text]:${argument//:/\\:}:$values"
}

# Fills viaduct_specs with the options of a command; lines further in go on with a text.
_viaduct_specs() {
	setopt localoptions extendedglob
	local -a viaduct_lines match mbegin mend
	local line option argument text reply
	_viaduct_help $1
	for line in "${viaduct_lines[@]}" ''; do
		if [[ -n $option && $line =~ '^   +([^ -].*)$' ]]; then
			text+=" $match[1]"
			continue
		fi
		if [[ -n $option ]]; then
			_viaduct_spec $option "$argument" "$text"
			viaduct_specs+=("$reply")
			option=
		fi
		if [[ $line =~ '^  (-[a-zA-Z], )?(--[a-z0-9-]+)[ =]?([^ ]*) *(.*)$' ]]; then
			option=$match[2] argument=$match[3] text=$match[4]
		fi
	done
}

_viaduct() {
	local curcontext=$curcontext state line viaduct_command=$words[1]
	local -a viaduct_specs
	_arguments -C '--help[print the commands]' '--version[print the version]' \
		'1: :_viaduct_commands' '*:: :->arguments' && return
	[[ $state == arguments ]] || return 1
	local command=$words[1]
	_viaduct_specs $command
	if [[ $command == run ]]; then
		_arguments -S $viaduct_specs '(-):program: _command_names -e' \
			'*::argument: _normal'
	else
		_arguments -S $viaduct_specs '*: :_files'
	fi
}

_viaduct "$@"
