// A text becomes lines, each with its tokens and its comment (read_lines). Lines are laid out one after the other: the
// state is the stack of open brackets and, in the innermost block, the statement that is being written. Last, comments
// behind code are aligned and all is printed.
#include "tools/format.h"
#include <string.h>

enum { INDENT = 4, COMMENT_GAP = 3 };

typedef struct Line {
    int from, to;          // tokens
    const char *comment;   // up to the end of the line; NULL: none
    int comment_length;
    bool blank_before;
    int indent;
    StrBuf code;   // without the indentation
} Line;

typedef VEC(Line) Lines;

// ---- lines ----

static bool is_empty(const Line *line) {
    return line->from == line->to && !line->comment;
}

typedef struct Reader {
    Arena *arena;
    Lines *lines;
    Line line;    // being read
    bool blank;   // an empty line stood before it
} Reader;

static void end_line(Reader *r, int token) {
    if (is_empty(&r->line)) {
        r->blank = true;
    } else {
        r->line.blank_before = r->blank && r->lines->count > 0;
        vec_push(r->arena, r->lines, r->line);
        r->blank = false;
    }
    r->line = (Line){.from = token, .to = token};
}

static int trimmed(const char *text, int length) {
    while (length > 0 && strchr(" \t\r", text[length - 1])) length--;
    return length;
}

// White space and comments in front of `token`.
static void read_blank(Reader *r, const char *text, int length, int token) {
    for (int at = 0; at < length;) {
        int size = 1;
        if (text[at] == '/') {
            while (at + size < length && text[at + size] != '\n') size++;
            r->line.comment = text + at;
            r->line.comment_length = trimmed(text + at, size);
        } else if (text[at] == '\n') {
            end_line(r, token);
        }
        at += size;
    }
}

static void read_lines(const SourceTree *tree, Lines *lines) {
    Reader r = {.arena = tree->arena, .lines = lines};
    int end = 0;
    for (int i = 0; i < tree->tokens.count; i++) {
        const Token *token = &tree->tokens.items[i];
        read_blank(&r, tree->text + end, token->blank, i);
        r.line.to = i + 1;
        end = token->start + token->length;
    }
    read_blank(&r, tree->text + end, tree->length - end, tree->tokens.count);
    if (!is_empty(&r.line)) end_line(&r, tree->tokens.count);
}

// ---- layout ----

typedef struct Bracket {
    bool block, header;   // of statements; of `for (...)` and its like, which a body follows
    int outer, inner;     // columns: of a line that begins with the closing bracket; of lines within
    VEC(int) ifs;         // columns of the `if`s of the statement that may have an `else`
} Bracket;

// What the next token of a block is.
typedef enum {
    BEGINS_STATEMENT,
    BEGINS_BODY,    // of the statement before, without braces
    BEGINS_AGAIN,   // the statement behind its attributes
    GOES_ON,
} Place;

typedef struct Formatter {
    const SourceTree *tree;
    VEC(Bracket) open;
    Place place;
    int statement, rest;   // columns: of the statement, of lines that go on with it
    int attribute_end;     // token behind the attribute that is being written
} Formatter;

static bool is_any(const SourceTree *tree, int token, const char *const *words) {
    for (; *words; words++)
        if (token_is(tree, token, *words)) return true;
    return false;
}

static bool is_header(const SourceTree *tree, int token) {
    static const char *const words[] = {"for",       "if",         "while",  "unroll", "parallel",
                                        "pipelined", "vectorized", "thread", NULL};
    return is_any(tree, token, words);
}

static bool declares_list(const SourceTree *tree, int token) {
    static const char *const words[] = {"shared", "fragment", "local", "tune", "var", NULL};
    return is_any(tree, token, words);
}

static Bracket *innermost(Formatter *f) {
    return &f->open.items[f->open.count - 1];
}

static int width(const StrBuf *text) {
    int columns = 0;
    for (size_t i = 0; i < text->length; i++) columns += (text->text[i] & 0xc0) != 0x80;
    return columns;
}

// The column of a line that begins with `token`.
static int line_column(Formatter *f, int token) {
    Bracket *open = innermost(f);
    bool closes = f->open.count > 1 && strchr(")]}", f->tree->text[f->tree->tokens.items[token].start]);
    if (closes) return open->outer;
    if (!open->block || f->place == BEGINS_STATEMENT) return open->inner;
    if (token_is(f->tree, token, "else") && open->ifs.count) return open->ifs.items[open->ifs.count - 1];
    if (f->place == BEGINS_BODY && !f->tree->braces[token]) return f->statement + INDENT;
    return f->place == GOES_ON ? f->rest : f->statement;
}

// Sets the columns of the statement that `token`, at `column`, begins or goes on with.
static void enter_statement(Formatter *f, int token, int column, bool first) {
    Bracket *open = innermost(f);
    if (!open->block) return;
    if (f->place == BEGINS_STATEMENT) {
        f->statement = open->inner;
        open->ifs.count = 0;
    } else if (token_is(f->tree, token, "else") && open->ifs.count) {
        f->statement = open->ifs.items[--open->ifs.count];
    } else if (f->place == BEGINS_BODY && first) {
        f->statement = column;
    }
    if (f->place == GOES_ON) return;
    bool list = declares_list(f->tree, token);
    f->rest = list ? column + f->tree->tokens.items[token].length + 1 : f->statement + INDENT;
    if (token_is(f->tree, token, "if")) vec_push(f->tree->arena, &open->ifs, f->statement);
}

static void open_bracket(Formatter *f, int token, int column, const Line *line) {
    Bracket bracket = {.block = f->tree->braces[token] == BLOCK_OPENS, .outer = f->statement};
    bracket.inner = f->statement + INDENT;
    if (!bracket.block) {
        bool last = token + 1 == line->to;
        bracket.outer = last ? line->indent : column;
        bracket.inner = last ? line->indent + INDENT : column + 1;
        bracket.header = innermost(f)->block && token > 0 && is_header(f->tree, token - 1);
    }
    vec_push(f->tree->arena, &f->open, bracket);
    f->place = bracket.block ? BEGINS_STATEMENT : GOES_ON;
}

static bool statement_goes_on(const SourceTree *tree, int token) {
    static const char *const words[] = {"else", "tolerance", ";", ",", NULL};
    return is_any(tree, token, words);
}

static void close_bracket(Formatter *f, int token) {
    Bracket closed = f->open.items[--f->open.count];
    f->place = closed.header ? BEGINS_BODY : GOES_ON;
    if (!closed.block) return;
    f->statement = closed.outer;
    if (!statement_goes_on(f->tree, token + 1)) f->place = BEGINS_STATEMENT;
}

// Attributes stand in front of a statement, in any number.
static void begin_attribute(Formatter *f, int token) {
    int end = token + 2;
    bool arguments = token_is(f->tree, end, "(") && f->tree->match[end] >= 0;
    f->attribute_end = arguments ? f->tree->match[end] + 1 : end;
}

// What comes behind `token`, at `column`.
static void leave_token(Formatter *f, int token, int column, const Line *line) {
    const SourceTree *tree = f->tree;
    char c = tree->text[tree->tokens.items[token].start];
    bool closes = strchr(")]}", c) && f->open.count > 1;
    if (tree->match[token] >= 0) open_bracket(f, token, column, line);
    else if (closes) close_bracket(f, token);
    else if (c == ';' && innermost(f)->block) f->place = token_is(tree, token + 1, "else") ? GOES_ON : BEGINS_STATEMENT;
    else f->place = token_is(tree, token, "else") ? BEGINS_BODY : GOES_ON;
    if (token + 1 == f->attribute_end) f->place = BEGINS_AGAIN;
}

static bool declares_buffers(const SourceTree *tree, const Line *line) {
    static const char *const words[] = {"shared", "fragment", "local", "channel", NULL};
    return line->to > line->from + 1 && is_any(tree, line->from, words);
}

// Of the names of buffers on neighbouring lines: behind the longest of these words.
static int name_column(const SourceTree *tree, const Lines *lines, int line) {
    int first = line, longest = 0;
    while (first > 0 && !lines->items[first].blank_before && declares_buffers(tree, &lines->items[first - 1])) first--;
    for (int i = first; i < lines->count && declares_buffers(tree, &lines->items[i]); i++) {
        if (i > first && lines->items[i].blank_before) break;
        int length = tree->tokens.items[lines->items[i].from].length;
        if (length > longest) longest = length;
    }
    return longest + 1;
}

static void write_line(Formatter *f, const Lines *lines, int index) {
    Line *line = &lines->items[index];
    line->indent = line_column(f, line->from);
    for (int i = line->from; i < line->to; i++) {
        const Token *token = &f->tree->tokens.items[i];
        bool first = i == line->from;
        if (!first && token_spaced(f->tree, i)) sb_char(&line->code, ' ');
        int column = line->indent + width(&line->code);
        if (f->place != GOES_ON && token_is(f->tree, i, "@")) begin_attribute(f, i);
        enter_statement(f, i, column, first);
        sb_bytes(&line->code, f->tree->text + token->start, (size_t)token->length);
        leave_token(f, i, column, line);
        bool padded = first && declares_buffers(f->tree, line);
        for (int at = padded ? name_column(f->tree, lines, index) : 0; width(&line->code) + 1 < at;)
            sb_char(&line->code, ' ');
    }
}

static void write_lines(const SourceTree *tree, Lines *lines) {
    Formatter f = {.tree = tree, .attribute_end = -1};
    vec_push(tree->arena, &f.open, ((Bracket){.block = true}));
    for (int i = 0; i < lines->count; i++) {
        sb_init(&lines->items[i].code, tree->arena);
        if (lines->items[i].from < lines->items[i].to) write_line(&f, lines, i);
    }
    for (int i = lines->count - 2; i >= 0; i--) {   // a comment belongs to what follows
        Line *line = &lines->items[i], *next = line + 1;
        if (line->from < line->to) continue;
        bool closes = next->from < next->to && strchr(")]}", tree->text[tree->tokens.items[next->from].start]);
        line->indent = next->indent + closes * INDENT;
    }
}

// ---- printing ----

static int comment_column(const Lines *lines, int line) {
    int first = line, longest = 0;
    const Line *items = lines->items;
    while (first > 0 && items[first - 1].comment && items[first - 1].code.length && !items[first].blank_before) first--;
    for (int i = first; i < lines->count && items[i].comment && items[i].code.length; i++) {
        if (i > first && items[i].blank_before) break;
        int end = items[i].indent + width(&items[i].code);
        if (end > longest) longest = end;
    }
    return longest + COMMENT_GAP;
}

static void print_line(const Lines *lines, int index, StrBuf *out) {
    const Line *line = &lines->items[index];
    sb_printf(out, "%*s", line->indent, "");
    sb_bytes(out, sb_text(&line->code), line->code.length);
    if (line->comment && line->code.length)
        sb_printf(out, "%*s", comment_column(lines, index) - line->indent - width(&line->code), "");
    if (line->comment) sb_bytes(out, line->comment, (size_t)line->comment_length);
    sb_char(out, '\n');
}

static bool keeps_blank(const SourceTree *tree, const Lines *lines, int line) {
    const Line *here = &lines->items[line], *before = here - 1;
    if (!here->blank_before) return false;   // nor does the first line
    bool opened = before->to > before->from && tree->braces[before->to - 1] == BLOCK_OPENS;
    bool closes = here->to > here->from && tree->braces[here->from] == BLOCK_CLOSES;
    return !opened && !closes;
}

void format_source(const SourceTree *tree, StrBuf *out) {
    Lines lines = {0};
    read_lines(tree, &lines);
    write_lines(tree, &lines);
    for (int i = 0; i < lines.count; i++) {
        if (keeps_blank(tree, &lines, i)) sb_char(out, '\n');
        print_line(&lines, i, out);
    }
}
