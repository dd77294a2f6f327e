; Colors of a tile program. Later patterns count more.
[
  "kernel" "program" "fn" "macro" "reference" "test" "import" "const" "tolerance" "tune" "assume" "when" "cost" "scratch" "grid" "threads" "cluster"
  "persistent" "raster" "regs" "role" "async" "thread" "shared" "fragment" "local" "var" "let" "layout" "strides" "in" "out" "inout" "step"
  "channel" "slots" "readers" "produce" "consume" "ordered"
] @keyword
["for" "unroll" "vectorized" "parallel" "pipelined" "while"] @keyword.repeat
["if" "else"] @keyword.conditional
["break" "return"] @keyword.return

[
  "=" "+=" "-=" "*=" "/=" "%=" "&=" "|=" "^=" "<<=" ">>=" "||" "&&" "|" "^" "&" "==" "!=" "<" ">" "<=" ">=" "<<" ">>" "+" "-" "*" "/" "%" "!" "~"
  "?" ".." "+:" "->"
] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ";" ":" "."] @punctuation.delimiter

(name) @variable
(member member: (identifier) @variable.member)
(parameter name: (identifier) @variable.parameter)
(binding name: (identifier) @variable.parameter)
(type) @type
(call function: (identifier) @function.call)
(kernel name: (identifier) @function)
(program name: (identifier) @function)
(function name: (identifier) @function)
(macro name: (identifier) @function)
(reference name: (identifier) @function)
(test name: (identifier) @function)
(role name: (identifier) @label)
(channel name: (identifier) @label)
(slot_block channel: (identifier) @label)
(constant name: (identifier) @constant)
(tunable name: (identifier) @constant)
((name) @constant.builtin (#any-of? @constant.builtin "true" "false" "inf" "nan"))
(attribute "@" @attribute name: (identifier) @attribute)

[(integer) (float)] @number
(float "." @number)
(string) @string
(comment) @comment
