// A program's text as tokens and as a tree of its brackets, for `tilec reduce` and `tilec fmt`.
//
// The tree needs no grammar: it knows brackets, `;` and `,` only, so that it also holds what does not parse.
//
//     kernel k(x: f32[N]) { var s: f32 = 0; s += x[0]; }
//
//     group (the file)
//       item  kernel k (...) {...}              one statement
//         token kernel, token k
//         group ( )     item x : f32 [ ]        a list: items between commas
//         group { }     item var s ... ;        a block: items are statements
//                       item s += x [ ] ;
#pragma once
#include "support/strbuf.h"
#include "support/vec.h"
#include <stdbool.h>

typedef enum { TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SYMBOL } TokenKind;

typedef struct Token {
    TokenKind kind;
    int start, length;   // bytes of the text
    int blank;           // bytes of white space and comments in front
} Token;

typedef enum { NODE_TOKEN, NODE_ITEM, NODE_GROUP } SourceNodeKind;

typedef struct SourceNode SourceNode;
struct SourceNode {
    SourceNodeKind kind;
    int from, to;    // tokens, those of the brackets included
    bool brackets;   // a group between brackets; else the file, or the list of `shared a: ..., b: ...;`
    bool block;      // a group of statements; else its items are separated by commas
    SourceNode *parent;
    int index;   // among the kids of the parent
    VEC(SourceNode *) kids;
};

typedef enum { BLOCK_OPENS = 1, BLOCK_CLOSES = 2 } BraceMark;   // of braces around statements

typedef struct SourceTree {
    Arena *arena;
    const char *text;
    int length;
    VEC(Token) tokens;
    const int *match;   // for an opening bracket its closing one, else -1. Without a partner it is a token like others
    const char *braces;         // BraceMark of each token
    VEC(SourceNode *) groups;   // breadth first: outer ones before inner ones
    VEC(SourceNode *) items;    // likewise
} SourceTree;

// `text` has to outlive the tree.
SourceTree *source_parse(Arena *arena, const char *text, int length);

bool token_is(const SourceTree *tree, int token, const char *text);   // false outside of the file
bool token_same(const SourceTree *tree, int a, int b);
char *token_text(const SourceTree *tree, int token);   // a copy

// Whether white space stands between a token and the one before it. Never where two tokens would become another one.
bool token_spaced(const SourceTree *tree, int token);

// The text again: one statement a line, indented, without comments.
void source_format(SourceTree *tree, StrBuf *out);
