// What the scanner, the grammar and their driver share. Not for other files of the folder (they see ast.h and
// syntax.h).
#pragma once
#include "frontend/ast.h"
#include "frontend/foreign.h"
#include "support/files.h"
#include "support/map.h"

typedef enum { PARSE_FILE, PARSE_EXPR } ParseStart;

enum { PARSE_MAX_NOTES = 100 };   // about other languages

// The parser drops an unexpected token. Of one that begins the next statement the scanner gives a ';' and it again.
typedef enum { REPLAY_NONE, REPLAY_SEMICOLON, REPLAY_TOKEN } Replay;

// The state of one parse: the position in the text, the open brackets, and the result.
typedef struct Parse {
    Arena *arena;
    const char *text;
    size_t length;
    Failure *failure;
    DiagSink *sink;
    int file;
    int line, column;     // of the next byte
    Span current, last;   // this token and the one before it, where a missing `;` belongs
    Span open[AST_MAX_PRINTED];
    int opened, nesting;   // open brackets, and how many there may be
    bool too_deep;         // reported once
    Span explained;        // by the notes so far
    Span wrong;            // the last unexpected token
    Replay replay;         // where a ';' was missing
    int token;             // the last one, and its text
    char *token_text;
    int run;          // tokens since a statement began or ended
    bool bad_token;   // the scanner reported this one: the grammar stays silent about it
    ParseStart start;
    bool started;   // the token that chooses what to parse was given
    Node *result;
} Parse;

// Parses one text that is already a source of the sink. NULL when there were errors.
Node *parse_text(Arena *arena, Failure *failure, DiagSink *sink, int file, const char *text, size_t length,
                 ParseStart start, int nesting);

// ---- builders: all that the grammar's actions call ----
Node *parse_node(Parse *p, NodeKind kind, Span span, const char *text, int op, int count, ...);   // kids, may be NULL
Node *parse_number(Parse *p, Span span, const char *text, bool is_float);
Node *parse_push(Parse *p, Node *list, Node *kid);
Node *parse_index(Parse *p, Node *index, Node *base, Span span);
void parse_too_many_operators(Parse *p, Span span);
Node *parse_body(Parse *p, Node *stmt);   // a body without braces becomes a block
Node *parse_attrs(Node *stmt, Node *attrs);
Span parse_join(Span first, Span last);
// A parameter. `dims` with coordinates (N_ITER) becomes their extents, and a list of their own.
Node *parse_param(Parse *p, Span span, const char *name, int mode, Node *type, Node *dims, Node *strides, Node *map);
const char *parse_source_text(Parse *p, Span span);   // what stands there, quoted
// What the text around an unexpected token means in another language; what it explains is not reported again.
bool parse_foreign(Parse *p, ForeignKind kind, Span at, Foreign *found);
// The keyword that was meant by the token, the word before it or the one before the bracket around it: a note and a fix. Of a
// token itself only the `words` that may stand there count.
bool parse_suggest_keyword(Parse *p, Diag *d, Span at, StrMap *words);
// The bracket that is open there, of which the token may be the reason.
void parse_label_bracket(const Parse *p, Diag *d);
bool parse_is_explained(const Parse *p, Span at);

char *parse_unquote(Parse *p, const char *text, size_t length);
void parse_open(Parse *p, Span span);
void parse_close(Parse *p);
