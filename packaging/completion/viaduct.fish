# SPDX-License-Identifier: Apache-2.0
# Completion of viaduct(1) for fish. Commands, options and values come from --help, so that
# they are those of the command that is there.

# The words before the cursor, without the first.
function __viaduct_words
    set -l words (commandline -opc)
    test (count $words) -lt 2; or printf '%s\n' $words[2..-1]
end

function __viaduct_help
    set -l words (commandline -opc)
    command $words[1] $argv --help 2>/dev/null </dev/null
end

function __viaduct_commands
    __viaduct_help | string replace -rf '^  ([a-z][a-z-]*)  +(.*)$' '$1\t$2'
end

# Option, the name of the argument that it needs or nothing, and its text, by tabs; short
# ones, too.
function __viaduct_options
    set -l help (__viaduct_help $argv[1])
    string replace -rf '^ +(?:-[a-zA-Z], *)?(--[a-z0-9-]+)(?:[ =]([A-Z][^ ]*))?(?:\[=\S+)? *(.*)$' \
        '$1\t$2\t$3' -- $help
    string replace -rf '^ +(-[a-zA-Z]), *--[a-z0-9-]+(?:[ =]([A-Z][^ ]*))?(?:\[=\S+)? *(.*)$' \
        '$1\t$2\t$3' -- $help
end

# What is wanted at the cursor: command, option and its argument, program and its index.
function __viaduct_state
    set -l words (__viaduct_words)
    if test (count $words) -eq 0; or test "$words" = help
        echo command
        return
    end
    set -l options (__viaduct_options $words[1])
    set -l waits
    for i in (seq 2 (count $words))
        set -l word $words[$i]
        if test -n "$waits"
            set waits
        else if test "$word" = --
            echo program $i
            return
        else if string match -q -- '-*' $word
            set waits (string replace -rf -- "^($word)\t([^\t]+)\t.*" '$1 $2' $options)
        else if test $words[1] = run
            echo program (math $i - 1)
            return
        end
    end
    if test -n "$waits"
        echo value $waits
    else if test $words[1] = run; and not string match -q -- '-*' (commandline -ct)
        echo program (count $words)
    else
        echo option
    end
end

# __viaduct_values COMMAND OPTION NAME
function __viaduct_values
    switch $argv[2]:$argv[3]
        case '--log:*'
            printf '%s\n' off error info debug debug:stderr
        case '--placement:*'
            printf '%s\n' two one free
        case '--registration:*'
            printf '%s\n' keep check once
        case '--io-uring:*'
            printf '%s\n' refuse leave
        case '--go:*' '--static:*'
            printf '%s\n' leave follow
        case '--redirect:*'
            printf '%s\n' auto off 64K 256K
        case '--ring-max:*'
            printf '%s\n' 16K 256K 4M
        case '*:FILE' '*:DIR'
            __fish_complete_path (commandline -ct)
        case '*:PID'
            __fish_complete_pids
        case '*'
            set -l help (__viaduct_help $argv[1] | string collect)
            set -l list (string match -rg -- \
                "(?s)\n +(?:-[a-zA-Z], *)?$argv[2] \S+ +o[fn] ([a-z0-9-]+,\s.*?)(?:\n +-|\n\n|\n\$|\$)" \
                $help)
            set list (string replace -r '(?s),?\swhere\s.*|\(.*' '' -- "$list")
            set list (string replace -ra '\s(and|or)\s' ',' -- "$list" | string split ,)
            set -l before (string replace -rf '(.*,)[^,]*$' '$1' -- (commandline -ct))
            string match -r '[a-z0-9-]+(?=\s*$)' -- $list | string replace -r '^' "$before"
    end
end

function __viaduct_complete
    set -l words (__viaduct_words)
    set -l state (__viaduct_state | string split ' ')
    switch $state[1]
        case command
            __viaduct_commands
        case option
            __viaduct_options $words[1] | string replace -r '\t[^\t]*\t' '\t'
            if string match -rq '^usage:.* PID' (__viaduct_help $words[1])[1]
                __fish_complete_pids
            else if string match -rq '^usage:.* \[HOST' (__viaduct_help $words[1])[1]
                __fish_print_hostnames
            else if not string match -q -- '-*' (commandline -ct)
                __fish_complete_path (commandline -ct)
            end
        case value
            __viaduct_values $words[1] $state[2] $state[3]
        case program
            # The line from the program on, as if it stood alone.
            set -l rest $words[(math $state[2] + 1)..-1] (commandline -ct)
            complete -C (string join ' ' -- (string escape -- $rest[1..-2]) $rest[-1])
    end
end

complete -c viaduct -f -a '(__viaduct_complete)'
complete -c viaduct -n 'test (count (__viaduct_words)) -eq 0' -l help -d 'Print the commands'
complete -c viaduct -n 'test (count (__viaduct_words)) -eq 0' -l version -d 'Print the version'
