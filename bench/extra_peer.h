// An attention library of your own as a peer: `bench.py --extra NAME=LIBRARY.so`, which exports these three functions.
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
