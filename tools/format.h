// One form for the text of programs (`tilec fmt`). Line breaks and comments stay; white space within lines, indentation and
// blank lines are the formatter's. Like gofmt, and unlike clang-format, it never breaks or joins lines.
//
// | what | form |
// |---|---|
// | indentation | 4 columns for each block, and for a body without braces on a line of its own |
// | a line that goes on | behind the bracket that is open, or behind the first word of a list of declarations; else 4 columns |
// | blank lines | one at most; none at the beginning and end of the file and of a block |
// | `shared`, `fragment`, `local` on neighbouring lines | names begin in one column |
// | comments behind code on neighbouring lines | begin in one column, 3 blanks behind the longest line |
#pragma once
#include "tools/source.h"

// The text of `tree` in that form. Formatting the result again changes nothing.
void format_source(const SourceTree *tree, StrBuf *out);
