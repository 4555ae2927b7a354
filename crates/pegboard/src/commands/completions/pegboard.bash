# Completions of pegboard for bash. The program knows the names; paths are left to the shell.
_pegboard() {
    local word
    COMPREPLY=()
    # Each line is quoted for the shell. Nothing is expanded here.
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" complete --shell bash -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _pegboard pegboard
