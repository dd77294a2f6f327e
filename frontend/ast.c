// Nodes of the syntax tree.
#include "frontend/ast.h"

Node *ast_new(Arena *arena, NodeKind kind, Span span) {
    Node *node = NEW(arena, Node);
    node->kind = kind;
    node->span = span;
    node->depth = 1;
    node->bodies = kind == N_BLOCK;
    return node;
}

void ast_set(Node *node, int at, Node *kid) {
    node->kids[at] = kid;
    if (!kid) return;
    int bodies = kid->bodies + (node->kind == N_BLOCK);
    if (kid->depth >= node->depth) node->depth = kid->depth + 1;
    if (bodies > node->bodies) node->bodies = bodies;
}

void ast_push(Arena *arena, Node *node, Node *kid) {
    if (node->count == node->capacity) {
        int grown = node->capacity ? 2 * node->capacity : 4;
        node->kids =
            arena_grow(arena, node->kids, sizeof(Node *) * (size_t)node->count, sizeof(Node *) * (size_t)grown);
        node->capacity = grown;
    }
    ast_set(node, node->count++, kid);
}
