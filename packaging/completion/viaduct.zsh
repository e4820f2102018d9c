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

# Adds one option as _arguments wants it: name, text, and what its argument may be.
_viaduct_add() {
	local short=$1 option=$2 argument=$3 text=${4//(#m)[\[\]:\\]/\\$MATCH} values=' '
	local list part match mbegin mend
	case $option:$argument in
	*:) values= ;;
	--log:*) values='(off error info debug debug\:stderr)' ;;
	--placement:*) values='(two one free)' ;;
	--registration:*) values='(keep check once)' ;;
	--io-uring:*) values='(refuse leave)' ;;
	--go:* | --static:*) values='(leave follow)' ;;
	--redirect:*) values='(auto off 64K 256K)' ;;
	--ring-max:*) values='(16K 256K 4M)' ;;
	*:(FILE|DIR)) values=_files ;;
	*:PID) values=_pids ;;
	*)
		if [[ $4 =~ '^o[fn] [a-z0-9-]+, ' ]]; then
			list=${${${4#o[fn] }%%\(*}%%(,|) where *}
			values="_sequence compadd -"
			for part in "${(@s:,:)${list// (and|or) /,}}"; do
				values+=" ${${part%% ##}##* }"
			done
		fi
		;;
	esac
	text="[$text]${values:+:${argument//:/\\:}:$values}"
	[[ -n $short ]] && viaduct_specs+=("$short$text")
	viaduct_specs+=("$option$text")
}

# Fills viaduct_specs with the options of a command; lines further in go on with a text.
_viaduct_specs() {
	setopt localoptions extendedglob
	local -a viaduct_lines match mbegin mend
	local line short option argument text
	_viaduct_help $1
	for line in "${viaduct_lines[@]}" ''; do
		if [[ -n $option && $line =~ '^   +([^ -].*)$' ]]; then
			text+=" $match[1]"
			continue
		fi
		[[ -n $option ]] && _viaduct_add "$short" $option "$argument" "$text"
		option=
		if [[ $line =~ '^ +((-[a-zA-Z]), *)?(--[a-z0-9-]+)([ =]([A-Z][^ ]*))?(\[=[^ ]+)? *(.*)$' ]]; then
			short=$match[2] option=$match[3] argument=$match[5] text=$match[7]
		fi
	done
}

# A process or a host, where the command takes one; else a file, or a program's name.
_viaduct_operand() {
	local -a viaduct_lines
	_viaduct_help $command
	if [[ $viaduct_lines[1] == *\ PID* && $words[(r)--] != -- ]]; then
		_pids
	elif [[ $viaduct_lines[1] == *\ \[HOST* ]]; then
		_hosts
	else
		_alternative 'files:file:_files' 'commands:program:_command_names -e'
	fi
}

_viaduct() {
	local curcontext=$curcontext state line viaduct_command=$words[1]
	local -a viaduct_specs
	_arguments -C '--help[print the commands]' '--version[print the version]' \
		'1: :_viaduct_commands' '*:: :->arguments' && return
	[[ $state == arguments ]] || return 1
	local command=$words[1]
	if [[ $command == help ]]; then
		_viaduct_commands
		return
	fi
	_viaduct_specs $command
	if [[ $command == run ]]; then
		_arguments -S $viaduct_specs '(-):program: _command_names -e' \
			'*::argument: _normal'
	else
		_arguments -S $viaduct_specs '*: :_viaduct_operand'
	fi
}

_viaduct "$@"
