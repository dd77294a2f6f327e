// An attention library of your own as a peer: `bench.py --extra NAME=LIBRARY.so`, which exports these first three
// functions.
#pragma once

typedef struct AttentionCall {
    const void *q, *k, *v;   // bf16, [batch, heads, length, head_dim] by the strides below; head_dim is dense
    void *o;                 // out (backward: the result of the forward pass)
    float *lse;              // f32 [batch, heads, length], dense: out (backward: the forward pass's)
    const void *d_o;         // backward: the gradient of o
    void *dq, *dk, *dv;      // backward: out
    void *workspace;
    long long workspace_bytes;
    int batch, heads, length, head_dim, causal;        // causal: a query sees the keys up to its own place
    float scale;                                       // of the scores
    long long stride_batch, stride_head, stride_row;   // of all tensors but lse, in elements
    void *stream;                                      // cudaStream_t
} AttentionCall;

// Bytes of workspace that a call needs; -1: it is not served.
long long attention_workspace(const AttentionCall *call, int backward);
// Sends the work to the stream (which may be capturing a graph). 0: done.
int attention_forward(const AttentionCall *call);
int attention_backward(const AttentionCall *call);

// If there are these, too, rows of groups of heads, windows, soft caps and sequences one behind the other have the peer
// as well.
typedef struct AttentionFamilyCall {
    const void *q, *k,
        *v;   // bf16, [batch, heads or kv_heads, queries or keys, head_dim], or [heads.., tokens, head_dim], by the strides
    void *o;      // out, as q
    float *lse;   // f32, as many as q has rows: out
    void *workspace;
    long long workspace_bytes;
    int batch, heads, kv_heads, queries, keys, head_dim, causal;
    int window;            // keys that a query sees, its own among them; 0: all
    float scale, cap;      // scores are cap * tanh(score / cap); 0: as they are
    const int *starts;     // of the sequences, batch + 1 numbers on the device; NULL: all have `queries` and `keys`
    int longest, tokens;   // with starts
    long long q_batch, q_head, q_row, k_batch, k_head, k_row;   // strides in elements; v as k, o as q
    void *stream;
} AttentionFamilyCall;

long long attention_family_workspace(const AttentionFamilyCall *call);
int attention_family_forward(const AttentionFamilyCall *call);
