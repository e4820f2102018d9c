# SPDX-License-Identifier: Apache-2.0
# Completion of viaduct(1) for bash. Commands, options and values come from --help, so
# that they are those of the command that is there.

# _viaduct_help ARGUMENT...: what the command on the line says about itself.
_viaduct_help() {
	local command=${COMP_WORDS[0]}
	[[ ${command:0:2} == \~/ ]] && command=$HOME/${command:2}
	"$command" "$@" --help 2>/dev/null </dev/null
}

_viaduct_commands() {
	_viaduct_help | sed -nE 's/^  ([a-z][a-z-]*)  +.*/\1/p'
	echo help --help --version
}

# _viaduct_options COMMAND: each with the name of its argument behind it, if it needs one;
# the short one first.
_viaduct_options() {
	_viaduct_help "$1" | sed -nE '
		s/^ +(-[a-zA-Z]), *(--[a-z0-9-]+)[ =]([A-Z]\S*) .*/\1 \3\n\2 \3/p; t
		s/^ +(-[a-zA-Z]), *(--[a-z0-9-]+).*/\1\n\2/p; t
		s/^ +(--[a-z0-9-]+)([ =]([A-Z]\S*))?.*/\1 \3/p'
}

# _viaduct_values COMMAND OPTION: what the help lists as `of one, two, three`; of several words
# the last one counts.
_viaduct_values() {
	_viaduct_help "$1" | awk -v option="$2" '
		/^ +-/ { here = $1 == option || $1 == option "," || $2 == option }
		!/^ / { here = 0 }
		here { text = text " " $0 }
		END {
			if (!match(text, / o[fn] [a-z0-9-]+, /))
				exit
			text = substr(text, RSTART + 4)
			sub(/,? where .*|\(.*/, "", text)
			gsub(/ (and|or) /, ",", text)
			for (n = split(text, part, ","); n > 0; n--) {
				words = split(part[n], word, " ")
				print word[words]
			}
		}'
}

# The processes under Viaduct, as far as the user may look.
_viaduct_processes() {
	grep -ls '/libviaduct-preload[a-z-]*\.so' /proc/[0-9]*/maps 2>/dev/null | sed -E 's|^/proc/([0-9]+)/.*|\1|'
}

# _viaduct_program INDEX: the program at that word, and its own arguments after it.
_viaduct_program() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	else
		compopt -o default
	fi
}

# _viaduct_argument COMMAND OPTION NAME: the value that the option takes.
_viaduct_argument() {
	local words
	case $2:$3 in
	--log:*) words="off error info debug debug:stderr" ;;
	--placement:*) words="two one free" ;;
	--registration:*) words="keep check once" ;;
	--io-uring:*) words="refuse leave" ;;
	--go:* | --static:*) words="leave follow" ;;
	--redirect:*) words="auto off 64K 256K" ;;
	--ring-max:*) words="16K 256K 4M" ;;
	*:FILE | *:DIR)
		compopt -o default
		return
		;;
	*:PID) words=$(_viaduct_processes) ;;
	*) words=$(_viaduct_values "$1" "$2") ;;
	esac
	local before=
	if [[ $3 == LIST && $cur == *,* ]]; then
		before=${cur%,*},
	fi
	mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${cur#"$before"}")
}

_viaduct() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} word i
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$(_viaduct_commands)" -- "$cur")
		return
	fi
	if [[ $command == help ]]; then
		((COMP_CWORD == 2)) &&
			mapfile -t COMPREPLY < <(compgen -W "$(_viaduct_commands)" -- "$cur")
		return
	fi
	[[ $command == [a-z]* ]] || return
	local -A takes=()
	while read -r word i; do
		takes[$word]=$i
	done < <(_viaduct_options "$command")

	# Which option waits for its value here; where the program begins.
	local waits='' program=0
	for ((i = 2; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $waits ]]; then
			[[ $word == = ]] || waits=
		elif [[ $word == -- ]]; then
			program=$((i + 1))
			break
		elif [[ $word == -* ]]; then
			[[ ${takes[$word]} ]] && waits=$word
		elif [[ $command == run ]]; then
			program=$i
			break
		fi
	done
	[[ $waits && $cur == = ]] && cur=
	if ((program)); then
		_viaduct_program $program
	elif [[ $waits ]]; then
		_viaduct_argument "$command" "$waits" "${takes[$waits]}"
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "${!takes[*]}" -- "$cur")
	elif [[ $command == run ]]; then
		_viaduct_program "$COMP_CWORD"
	elif [[ $(_viaduct_help "$command") =~ ^usage:[^$'\n']*\ PID ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_viaduct_processes)" -- "$cur")
	elif [[ $(_viaduct_help "$command") =~ ^usage:[^$'\n']*\ \[HOST ]]; then
		mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur")
	else
		compopt -o default
	fi
}

complete -F _viaduct viaduct
