# Prints every line of C as "file:line:code" with comments taken out and string and character constants emptied, so
# that a search sees code only. `//` is left in place: its use is what a search looks for.
FNR == 1 {
    in_comment = 0
}

{
    line = $0
    code = ""
    while (line != "") {
        if (in_comment) {
            end = index(line, "*/")
            if (end == 0) {
                break
            }
            line = substr(line, end + 2)
            code = code " "
            in_comment = 0
        } else if (!match(line, /\/\*|"|'/)) {
            code = code line
            break
        } else {
            code = code substr(line, 1, RSTART - 1)
            line = substr(line, RSTART)
            if (substr(line, 1, 2) == "/*") {
                line = substr(line, 3)
                in_comment = 1
            } else if (match(line, /^"([^"\\]|\\.)*"/) || match(line, /^'([^'\\]|\\.)*'/)) {
                code = code "\"\""
                line = substr(line, RLENGTH + 1)
            } else {
                code = code substr(line, 1, 1)
                line = substr(line, 2)
            }
        }
    }
    print FILENAME ":" FNR ":" code
}
