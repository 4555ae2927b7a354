# Completions of pegboard for fish. The program knows the names; paths are left to the shell.
function __pegboard_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l found ($program complete --shell fish -- $words (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c pegboard -f -a '(__pegboard_complete)'
