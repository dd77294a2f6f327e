#!/usr/bin/env python3
"""Wrong programs must fail their tests: for each example, small mistakes that a person or a pass could make (an output that
is zero, the last key dropped, a k step skipped...), one at a time. `tilec test` has to answer 1 for each.

    source_mutations.py TILEC EXAMPLES [-j JOBS] [--only EXAMPLE] [--sample COUNT | --texts]     exit 0: all were caught
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import sys
import tempfile

from failing import until_failure

FOR_HOPPER = {"attention_decode", "attention_fp8_roles", "attention_mla", "attention_roles", "cumulative_sum", "layer_norm", "rmsnorm",
              "softmax", "gemm_few_rows"}   # with kernels that other targets do not have

# (example, what is wrong, old text, new text). The old text occurs exactly once in the example.
MUTATIONS = [
    ("add_rmsnorm_quantize", "output is zero", "Q(v[i, j] * top[i]);", "Q(0);"),
    ("add_rmsnorm_quantize", "residual not kept", "copy(v, residual[b * ROWS, 0]);", ""),
    ("add_rmsnorm_quantize", "scale of the whole type", "scale[b * ROWS + i] = top[i] / LIMIT;", "scale[b * ROWS + i] = top[i];"),
    ("add_rmsnorm_quantize", "cut, not rounded", "Q(round(v[i, j] * top[i]));", "Q(v[i, j] * top[i] * 0.9);"),
    ("attention", "output is zero", "copy(o, O[b, h, m * BM, 0]);", "fill(o, 0); copy(o, O[b, h, m * BM, 0]);"),
    ("attention", "last key dropped", "n * BN + j >= T ||", "n * BN + j >= T - 1 ||"),
    ("attention", "last block of keys skipped", "n in ceildiv(last, BN)", "n in ceildiv(last, BN) - 1"),
    ("attention", "output not rescaled", "o[i, j] *= alpha[i];", "o[i, j] *= 1;"),
    ("attention", "sum not rescaled", "sum[i] *= alpha[i];", "sum[i] *= 1;"),
    ("attention", "diagonal masked", "n * BN + j > m * BM + i", "n * BN + j >= m * BM + i"),
    ("attention", "last key of a piece dropped", "key + j >= T ||", "key + j >= T - 1 ||"),
    ("attention", "diagonal of packed rows masked", "key + j > packed_query(m * BM + i)", "key + j >= packed_query(m * BM + i)"),
    ("attention", "last block of a piece skipped", "n in to - from,", "n in to - from - 1,"),
    ("attention", "heads of the first group", "return g * GROUP + r % GROUP;", "return r % GROUP;"),
    ("attention", "piece not weighed", "w[q] = exp2(w[q] - top[0]);", "w[q] = 1;"),
    ("attention", "pieces beyond the first 16 dropped", "t in ceildiv(P, 16)", "t in min(ceildiv(P, 16), 1)"),
    ("attention_backward", "keys of the next query", "|| (CAUSAL && n * BN + i > m * BM + j)) s[i, j] = -inf;",
     "|| (CAUSAL && n * BN + i > m * BM + j + 1)) s[i, j] = -inf;"),
    ("attention_backward", "delta dropped", "(g[i, j] - deltas[j]);", "g[i, j];"),
    ("attention_backward", "last queries skipped", "m in first .. ceildiv(S, BM),", "m in first .. S / BM,"),
    ("attention_backward", "dK not scaled", "parallel (i in BN, d in D) dk[i, d] *= scale;\n        copy", "copy"),
    ("attention_backward", "sums not cleared", "fill(sums, 0);", "fill(sums, 1);"),
    ("attention_backward", "sum dropped from lse", "top[i] * scale + log2(sum[i]) * LOG2;", "top[i] * scale;"),
    ("attention_backward_ordered", "keys of the next query", "if (n * BN + i > m * BM + j) s[i, j] = 0;",
     "if (n * BN + i > m * BM + j + 1) s[i, j] = 0;"),
    ("attention_backward_ordered", "delta dropped", "tops[i]) * (g[i, j] - deltas[i]);", "tops[i]) * g[i, j];"),
    ("attention_backward_ordered", "last queries skipped", "m in first .. ceildiv(S, BM),", "m in first .. S / BM,"),
    ("attention_backward_ordered", "dK not scaled", "parallel (i in BN, d in D) dk[i, d] *= scale;", ""),
    ("attention_fp8", "last key dropped", "n * BN + j >= T ||", "n * BN + j >= T - 1 ||"),
    ("attention_fp8", "values not scaled", "v_scale[b, h] / sum[i];", "1 / sum[i];"),
    ("attention_fp8", "scale of another head", "k_scale[b, h] * LOG2E;", "k_scale[b, 0] * LOG2E * q_scale[b, 0] / q_scale[b, h];"),
    ("attention_fp8_roles", "last key dropped", "let low = (CAUSAL ? min(last, row) : last) - key;",
     "let low = (CAUSAL ? min(last, row) : last - 1) - key;"),
    ("attention_fp8_roles", "keys behind the query", "seen < 0 ? -1 : -2 <<", "seen < 0 ? -1 : -8 <<"),
    ("attention_fp8_roles", "blocks behind the query", "seen < 0 ? -1 :", "seen < 0 ? 0 :"),
    ("attention_fp8_roles", "places that do not come round", "if (place >= workers) place -= workers;", ""),
    ("attention_fp8_roles", "half a block of too few keys", "first + 64) - (blocks", "first) - (blocks"),
    ("attention_fp8_roles", "maxima of other bits", "if (vote_any(min(high[0], high[1]) < 0)) {",
     "if (vote_any(min(high[0], high[1]) < -2147483647)) {"),
    ("attention_fp8_roles", "bounds below 0 as bits", "most >= 0 ? bitcast(i32, most) : -0x80000000", "bitcast(i32, most)"),
    ("attention_fp8_roles", "maxima that do not grow", "grew = vote_any(own[0] >= limit[0] ||", "grew = vote_any("),
    ("attention_fp8_roles", "guesses of small weights", "return own < least &&", "return false &&"),
    ("attention_fp8_roles", "guesses off the middle", "(8 * 7 - CENTRE) * UNIT", "(8 * 7 + 4) * UNIT"),
    ("attention_fp8_roles", "sums not rescaled", "unroll (r in 2) sum[r] *= alpha[r];", "unroll (r in 2) sum[r] *= 1;"),
    ("attention_fp8_roles", "sums of a block twice", "unroll (e in 4) o[D / 2 + e] = 0;", "unroll (e in 4) o[D / 2 + e] *= 1;"),
    ("attention_fp8_roles", "numbers of the head mixed up", "lane / 8 % 2 * 8 + r % 4 * 2 + r / 4;", "lane / 8 % 2 * 8 + r;"),
    ("attention_mla", "last key dropped", "if (at + j >= end) s[i, j] = -inf;", "if (at + j >= end - 1) s[i, j] = -inf;"),
    ("attention_mla", "value of other columns", "gemm(p, Cs[:, 0 +: E], o);", "gemm(p, Cs[:, D - E +: E], o);"),
    ("attention_mla", "pieces overlap", "let at = start + n * BN;", "let at = n * BN;"),
    ("attention_mla", "key behind the end counted, few heads", "h in 16) if (j >= left) s[j, h] = -inf;", "h in 16) if (j > left) s[j, h] = -inf;"),
    ("attention_mla", "key behind the end counted, more heads", "j in 64) if (j >= left) s[i, j] = -inf;", "j in 64) if (j > left) s[i, j] = -inf;"),
    ("attention_mla", "output not rescaled, few heads", "if (top[h] != old[h]) o[e, h] *= alpha[h];", "if (top[h] != old[h]) o[e, h] *= 1;"),
    ("attention_mla", "output not rescaled, more heads", "if (top[i] != old[i]) o[i, d] *= alpha[i];", "if (top[i] != old[i]) o[i, d] *= 1;"),
    ("attention_mla", "other half not rescaled", "if (alpha[i] != 1) o[i, d] *= alpha[i];", "if (alpha[i] != 1) o[i, d] *= 1;"),
    ("attention_mla", "sums not rescaled", "sum[j, h] *= alpha[h];", "sum[j, h] *= 1;"),
    ("attention_mla", "values behind the end not cleared, few heads", "if (j >= left) k[j, d] = 0;", "if (j >= 64) k[j, d] = 0;"),
    ("attention_mla", "values behind the end not cleared, more heads", "if (left < 64) parallel (j in 64, d in 256) if (j >= left) v[j, d] = 0;", ""),
    ("attention_mla", "sequences taken as alike", "differs[i] = true;", "differs[i] = false;"),
    ("attention_mla", "keys from the sequence's start", "f.keys = length[b] - begin * 64;", "f.keys = length[b];"),
    ("attention_mla", "parts in another order", "x / 2 * 64 + w * 16 + x % 2 * 8 + j, h];", "x % 2 * 64 + w * 16 + x / 2 * 8 + j, h];"),
    ("attention_mla", "last part not told", "i32(i == 0 ? head : tail);", "i32(head);"),
    ("attention_mla", "part of another piece", "halves[g, m, other + b, half, n,", "halves[g, m, head + 1 + b, half, n,"),
    ("attention_mla", "second piece's part not weighed", "theirs[i] = exp2(levels[g, m, other + b, half, i] - top);", "theirs[i] = 1;"),
    ("attention_mla", "a ticket stays", "ticket[g, m, b, half, 0] = 0;", ""),
    ("paged_append", "place in the page ignored", "copy(key, K[at / PAGE, at % PAGE, g", "copy(key, K[at / PAGE, 0, g"),
    ("paged_append", "keys as values", "copy(v[t, g", "copy(k[t, g"),
    ("paged_append", "padding is written to the last slot", "let at = i64(slot[t]);\n        if (at >= 0 && at < P * PAGE) {\n            copy",
     "let at = min(i64(slot[t]), P * PAGE - 1);\n        if (at >= 0 && at < P * PAGE) {\n            copy"),
    ("attention_decode", "queries are not rotated", "rotate(Qs, low, high, c, sn);",
     "copy(Qs[:, 0 +: HALF], low); copy(Qs[:, HALF +: HALF], high);"),
    ("attention_decode", "the new token's score is not of its key", "low[i, j] = low[i, j] * key_low[0, j] +", "low[i, j] = low[i, j] * key_low[0, 0] +"),
    ("attention_decode", "the new token is read from the cache", "let old_end = min(end, keys - 1);", "let old_end = end;"),
    ("attention_decode", "the new token's weight is left out", "fill(sum, 1);", "fill(sum, 0);"),
    ("attention_decode", "keys and values are appended to the first page", "let page = table[b, last_page];", "let page = table[b, 0];"),
    ("attention_decode", "nothing is appended", "if (end == keys && m == 0) {", "if (end == keys && m == 1) {"),
    ("attention_decode", "angles of the token before", "copy(sine[keys - 1, 0 +: HALF], angle", "copy(sine[keys - 2, 0 +: HALF], angle"),
    ("attention_decode", "a CTA weighs its own result alone", "value[k] = peer(results[i, d], k);", "value[k] = results[i, d];"),
    ("attention_decode", "results of a cluster not weighed", "let w = exp2(level[k] - high);", "let w = 1.0;"),
    ("attention_decode", "first CTA of a cluster left out", "unroll (k in SHARES) {\n                            let w", "unroll (k in 1 .. SHARES) {\n                            let w"),
    ("attention_decode", "results are read before all are there", "cluster_barrier();\n            thread", "thread"),
    ("attention_decode", "a CTA exits while others read", "cluster_barrier();   // no CTA", "// no CTA"),
    ("attention_decode", "no zeros where there are no keys", "share * COLUMNS + d] = 0;", "share * COLUMNS + d] = 1;"),
    ("attention_paged", "output is zero", "copy(o, O[b, g, r * ROWS", "fill(o, 0); copy(o, O[b, g, r * ROWS"),
    ("attention_paged", "last piece dropped", "+ 1;\n        let last", ";\n        let last"),
    ("attention_paged", "pieces not weighed", "x[q, i, d] *= w[q, i];", "x[q, i, d] *= 1;"),
    ("attention_paged", "a piece starts with the next sequence", "running[i] <= i32(from) ? 1 : 0;", "running[i] <= i32(from) + 1 ? 1 : 0;"),
    ("attention_paged", "units of the go before not counted", "running[i] += before[0];", "running[i] += 0;"),
    ("attention_paged", "always the first page", "Vs[j, d] = at + j < end ? V[table[b, (at + j) / PAGE],",
     "Vs[j, d] = at + j < end ? V[table[b, 0],"),
    ("attention_roles", "last key dropped", "min(T - 1, row + i) : T - 1) - key", "min(T - 1, row + i) : T - 2) - key"),
    ("attention_roles", "not divided by the sum", "all[i] = 1 / all[i];", "all[i] = 1;"),
    ("attention_roles", "sums of a block before not rescaled", "sum[i, j] * alpha[i] + partial", "sum[i, j] + partial"),
    ("attention_roles", "tiles of two groups have three", "return m < pairs ? 2 : W;", "return W;"),
    ("attention_varlen", "last key dropped", "n * BN + j >= keys ||", "n * BN + j >= keys - 1 ||"),
    ("attention_varlen", "keys of another sequence", "copy(K[g, key + n * BN, 0], Ks);", "copy(K[g, n * BN, 0], Ks);"),
    ("attention_varlen", "stores beyond the end", "if (queries - m * R >= R) copy", "if (queries - m * R > 0) copy"),
    ("attention_varlen", "heads share wrongly", "let h = g * (H / G) + r;", "let h = r * G + g;"),
    ("attention_window", "window too wide", "n * BN + j + window <= at + i", "n * BN + j + window < at + i"),
    ("attention_window", "first block skipped", "n in first .. last,", "n in first + 1 .. last,"),
    ("attention_window", "soft cap dropped", "s[i, j] = tanh(s[i, j] * (scale / cap));", "s[i, j] *= scale / cap;"),
    ("attention_window", "sink dropped", "sum[i] += exp2(sink[h] * LOG2E - top[i] * c);", "sum[i] += 0;"),
    ("center_columns", "output is zero", "copy(v, y[0, j * COLS]);", "fill(v, 0); copy(v, y[0, j * COLS]);"),
    ("center_columns", "last row dropped", "reduce_sum(v, mean, axis = 0);",
     "parallel (i in M, c in COLS) if (i == M - 1) v[i, c] = 0; reduce_sum(v, mean, axis = 0);"),
    ("center_columns", "sum for mean", "mean[c] /= M;", "mean[c] /= 1;"),
    ("gemm_few_rows", "last k step skipped", "k in ceildiv(K + before, ALONG * VEC)", "k in ceildiv(K + before, ALONG * VEC) - 1"),
    ("gemm_few_rows", "sum not cleared", "fill(sum, 0);\n    for (k", "fill(sum, 1);\n    for (k"),
    ("gemm_few_rows", "A not shifted as B", "A[m, (k * ALONG + t) * VEC + i - before]", "A[m, (k * ALONG + t) * VEC + i]"),
    ("gemm_few_rows", "one row for another", "C[m, (first + j) * VEC + shift] = all", "C[m, (first + j) * VEC + max(shift - 1, 0)] = all"),
    ("gemm_few_rows", "tensor cores: A not shifted as B", "A[m, (s * each + k) * BK + i - before]", "A[m, (s * each + k) * BK + i]"),
    ("gemm_few_rows", "tensor cores: rest of the steps dropped", "let each = ceildiv(steps, SPLIT);", "let each = steps / SPLIT;"),
    ("gemm_few_rows", "tensor cores: one share for another", "slice[share + j, m], q)", "slice[j, m], q)"),
    ("gemm_few_rows", "tensor cores: one row for another", "C[m, (first + j) * VEC + shift] = acc",
     "C[m, (first + j) * VEC + max(shift - 1, 0)] = acc"),
    ("gemm", "output is zero", "copy(acc, C[bm * BM, bn * BN]);", "fill(acc, 0); copy(acc, C[bm * BM, bn * BN]);"),
    ("gemm", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm", "accumulator not cleared", "fill(acc, 0);", "fill(acc, 1);"),
    ("gemm", "k step taken twice", "copy(B[bn * BN, k * BK], Bs);", "copy(B[bn * BN, max(k - 1, 0) * BK], Bs);"),
    ("gemm_bias_gelu", "output is zero", "copy(acc, C[bm * BM, bn * BN]);",
     "fill(acc, 0); copy(acc, C[bm * BM, bn * BN]);"),
    ("gemm_bias_gelu", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm_bias_gelu", "bias dropped", "gelu(acc[i, j] + bias[bn * BN + j])", "gelu(acc[i, j])"),
    ("attention_lazy", "rows that grow are not rescaled", "if (alpha[i] != 1) o[i, d]", "if (alpha[i] > 1) o[i, d]"),
    ("attention_lazy", "the maximum of a row that has not grown is forgotten", "<= GROWTH) top[i] = old[i];",
     "<= GROWTH) top[i] = LOW;"),
    ("gemm_swiglu", "output is zero", "copy(gate, C[bm * BM, bn * BN]);", "fill(gate, 0); copy(gate, C[bm * BM, bn * BN]);"),
    ("gemm_swiglu", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm_swiglu", "gate and up exchanged", "silu(gate[i, j]) * up[i, j];", "silu(up[i, j]) * gate[i, j];"),
    ("gemm_fp8", "half of a step dropped", "gemm(As[:, CHUNK +: CHUNK], Bs[:, CHUNK +: CHUNK].T, next, accumulate = false);",
     "fill(next, 0);"),
    ("gemm_fp8", "parts not added up", "acc[i, j] += next[i, j];", "acc[i, j] = next[i, j];"),
    ("gemm_fp8", "last k step skipped", "gemm(As, Bs.T, acc);", "if (k + 1 < ceildiv(K, BK)) gemm(As, Bs.T, acc);"),
    ("gemm_fp8_blocks", "output is zero", "copy(acc, C[bm * BM, bn * BN]);",
     "fill(acc, 0); copy(acc, C[bm * BM, bn * BN]);"),
    ("gemm_fp8_blocks", "last k step skipped", "k in ceildiv(K, BLOCK)", "k in ceildiv(K, BLOCK) - 1"),
    ("gemm_fp8_blocks", "parts not added up", "acc[i, j] += partial[i, j]", "acc[i, j] = partial[i, j]"),
    ("gemm_fp8_blocks", "scales of the first block of columns", "scale_b[bn * BN / BLOCK, k + 1]", "scale_b[0, k + 1]"),
    ("gemm_fp8_blocks", "scales of the first tile of rows", "scale_a[k + 1, bm * BM + i]", "scale_a[k + 1, i]"),
    ("gemm_grouped", "output is zero", "if (rows == BM)", "fill(acc, 0); if (rows == BM)"),
    ("gemm_grouped", "last k step skipped", "ceildiv(K, BK) : 0", "ceildiv(K, BK) - 1 : 0"),
    ("gemm_grouped", "rows of the next group written", "C[row +: rows,", "C[row +: rows > 0 ? BM : 0,"),
    ("gemm_grouped", "weights of the group before", "copy(B[g, ", "copy(B[max(g - 1, 0), "),
    ("attention_selected", "output is zero", "? o[d, x] / sum[x] : 0;", "? 0 : 0;"),
    ("attention_selected", "keys after the query", "if (first + j > i ||", "if (first + j > i + 1 ||"),
    ("attention_selected", "weights of the block before", "copy(s, Ps);", "if (n == 0) copy(s, Ps);"),
    ("attention_selected", "the first group's keys", "copy(K[b, first +: BLOCK, g, 0 +: D], Ks);", "copy(K[b, first +: BLOCK, 0, 0 +: D], Ks);"),
    ("attention_sparse", "output is zero", "copy(o, O[b, h, m * BM, 0]);", "fill(o, 0); copy(o, O[b, h, m * BM, 0]);"),
    ("attention_sparse", "blocks as they come", "let first = blocks[h, m, n] * BLOCK;", "let first = n * BLOCK;"),
    ("attention_sparse", "last block skipped", "n in count[h, m],", "n in count[h, m] - 1,"),
    ("attention_sparse", "last key dropped", "first + j >= T ||", "first + j >= T - 1 ||"),
    ("attention_tree", "output is zero", "copy(o, O[b, h, m * BM, 0]);", "fill(o, 0); copy(o, O[b, h, m * BM, 0]);"),
    ("attention_tree", "siblings are seen", "mask[b, m * BM + i, key - first] == 0)) s[i, j]", "key - first > m * BM + i)) s[i, j]"),
    ("attention_tree", "distance of the number, not the depth", "f32(depth[b, key - first]) + f32(first);", "f32(key);"),
    ("attention_tree", "no bias", "s[i, j] += slope[h] * LOG2E", "s[i, j] += 0 * LOG2E"),
    ("gated_linear_attention", "state not passed on", "state[n, j] *= first[n];", "state[n, j] = 0;"),
    ("gated_linear_attention", "a row does not see itself", "a[r, j] = j <= r ?", "a[r, j] = j < r ?"),
    ("gated_linear_attention", "gates from the middle for the state", "state[n, j] *= second[n];", "state[n, j] *= 1;"),
    ("gated_linear_attention", "keys not gated", "k[r, n] = k[r, n] * exp2(-gate);", "k[r, n] = k[r, n];"),
    ("gemm_fp4", "output is zero", "transpose(acc, C[", "fill(acc, 0); transpose(acc, C["),
    ("gemm_fp4", "halves of a byte exchanged", "e2m1(Ws[n, j] & 15)", "e2m1(Ws[n, j] >> 4)"),
    ("gemm_fp4", "small numbers as large ones", "most < 2 ? 0.5", "most < 1 ? 0.5"),
    ("gemm_fp4", "scale of the first group", "(j < 32 ? s0[n] : s1[n])", "s0[n]"),
    ("gemm_i8", "output is zero", "copy(c, C[bm", "fill(c, 0); copy(c, C[bm"),
    ("gemm_i8", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm_i8", "scales of the first columns", "scale_w[bn * BN + j]", "scale_w[j]"),
    ("gemm_w4_zeros", "output is zero", "transpose(acc, C[", "fill(acc, 0); transpose(acc, C["),
    ("gemm_w4_zeros", "zero points of the other row", "n % 2 == 0 ? zero[k,", "n % 2 == 1 ? zero[k,"),
    ("gemm_w4_zeros", "zero points of the first group", "& 15 : zero[k, (bn", "& 15 : zero[0, (bn"),
    ("lightning_indexer", "keys after the query", "> m * BM + i + T - S)", "> m * BM + i + T)"),
    ("lightning_indexer", "what is negative, too", "w[i] * max(s[i, j], 0);", "w[i] * s[i, j];"),
    ("lightning_indexer", "one weight for all heads", "weight[m * BM + i, h];", "weight[m * BM + i, 0];"),
    ("moe", "output is zero", "copy(y, Y[t, n * BN]);", "fill(y, 0); copy(y, Y[t, n * BN]);"),
    ("moe", "rows as they come", "X[rows[m * BM + i] / K,", "X[(m * BM + i) / K,"),
    ("moe", "one expert alone", "copy(up[e, ", "copy(up[0, "),
    ("moe", "slots of a token not told apart", "place[t * K + k];", "place[t * K];"),
    ("moe", "not weighed", "weight[t * K + k] * z[j]", "z[j]"),
    ("mamba2_ssd", "state not passed on", "s[j] = s[j] * decay + S[", "s[j] = S["),
    ("mamba2_ssd", "decays to the chunk's begin", "w[i] = exp2(end - start[i]);", "w[i] = exp2(-start[i]);"),
    ("mamba2_ssd", "a row does not see itself", "n * BN + j <= m * BM + i ?", "n * BN + j < m * BM + i ?"),
    ("mamba2_ssd", "steps dropped", "s[i] -= step[i];", "s[i] -= 0;"),
    ("mamba2_ssd", "state in registers not decayed", "state[n, j] *= exp2(sum[PIECE - 1]);", "state[n, j] *= 1;"),
    ("mamba2_ssd", "a row of a piece does not see itself", "s[i, j] *= j <= i ?", "s[i, j] *= j < i ?"),
    ("gated_delta_rule", "nothing is taken away", "u[i, j] = v[i, j] - grow[i] * u[i, j];", "u[i, j] = v[i, j];"),
    ("gated_delta_rule", "state not decayed", "state[n, j] *= exp2(end);", "state[n, j] *= 1;"),
    ("gated_delta_rule", "a matrix not inverted", "x[r] -= T[k, r] * x[k];", "x[r] -= 0;"),
    ("gated_delta_rule", "inverse with the wrong sign", "x[r] -= T[k, r] * x[k];", "x[r] += T[k, r] * x[k];"),
    ("gated_delta_rule", "output without the state", "o[r, j] *= scale *", "o[r, j] *= 0 *"),
    ("gemm_w8", "output is zero", "transpose(acc, C[", "fill(acc, 0); transpose(acc, C["),
    ("gemm_w8", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm_w8", "scales of the first rows", "scale[bn * BN + n]", "scale[n]"),
    ("gemm_w4", "output is zero", "transpose(acc, C[", "fill(acc, 0); transpose(acc, C["),
    ("gemm_w4", "last k step skipped", "k in ceildiv(K, GROUP)", "k in ceildiv(K, GROUP) - 1"),
    ("gemm_w4", "halves of a byte exchanged", "w0[n, j] = (f32(Ws[n, j] & 15) - 8)", "w0[n, j] = (f32(Ws[n, j] >> 4) - 8)"),
    ("gemm_w4", "scale of the group before", "s[n] = scale[k,", "s[n] = scale[max(k - 1, 0),"),
    ("gemm_stream_k", "output is zero", "copy(acc, C[bm * BM, bn * BN]);", "fill(acc, 0); copy(acc, C[bm * BM, bn * BN]);"),
    ("gemm_stream_k", "last k step skipped", "k in ceildiv(K, BK),", "k in ceildiv(K, BK) - 1,"),
    ("gemm_stream_k", "columns of the neighbour", "B[bn * BN,", "B[bn * BN + 1,"),
    ("convolution", "filter mirrored", "copy(F[r, s, c,", "copy(F[r, S - 1 - s, c,"),
    ("convolution", "last place skipped", "ceildiv(C, 64) * R * S", "ceildiv(C, 64) * R * S - 1"),
    ("convolution", "dilation of the rows left out", "window(P, R, stride = STRIDE, padding = PAD, dilation = DIL)",
     "window(P, R, stride = STRIDE, padding = PAD)"),
    ("convolution", "a pixel less of padding", "window(Q, S, stride = STRIDE, padding = PAD", "window(Q, S, stride = STRIDE, padding = PAD - 1"),
    ("convolution", "rows of the result end early", "window(Q, 1)", "window(Q - 1, 1)"),
    ("convolution_backward", "phases exchanged", "let ph = phase / STRIDE;", "let ph = phase % STRIDE;"),
    ("convolution_backward", "a row of the gradients further down", "(ph + PAD) / STRIDE - t + BACK,", "(ph + PAD) / STRIDE - t + BACK - 1,"),
    ("convolution_backward", "filter not transposed", "place / S, place % S, i * BM], Xs", "place % S, place / S, i * BM], Xs"),
    ("convolution_3d", "depth and height exchanged", "[i * BM, t, r, s, c], Xs", "[i * BM, r, t, s, c], Xs"),
    ("gemm_residual", "output is zero", "copy(acc, C[bm * BM, bn * BN]);",
     "fill(acc, 0); copy(acc, C[bm * BM, bn * BN]);"),
    ("gemm_residual", "last k step skipped", "k in ceildiv(K, BK)", "k in ceildiv(K, BK) - 1"),
    ("gemm_residual", "bias dropped", "bias[bn * BN + j] + R[", "R["),
    ("gemm_residual", "residual halved", "R[bm * BM + i, bn * BN + j]", "0.5 * R[bm * BM + i, bn * BN + j]"),
    ("gemm_split_k", "output is zero", "copy(sum, C[m, b * BLOCK]);", "fill(sum, 0); copy(sum, C[m, b * BLOCK]);"),
    ("gemm_split_k", "last k step skipped", "ceildiv(ceildiv(K, BK), S);", "ceildiv(ceildiv(K, BK), S) - 1;"),
    ("gemm_split_k", "last k step of the sums skipped", "ceildiv(ceildiv(K, BK), splits);", "ceildiv(ceildiv(K, BK), splits) - 1;"),
    ("gemm_split_k", "sums over what was there", "    fill(C, 0);\n", ""),
    ("gemm_split_k", "last partial result dropped", "BATCH, m,", "min(BATCH, S - 1 - s * BATCH), m,"),
    ("gemm_split_k", "parts overlap", "copy(B[bn * BN, (s * steps + k) * BK], Bs);", "copy(B[bn * BN, k * BK], Bs);"),
    ("embedding", "output is zero", "= table[row[i], j];", "= 0;"),
    ("embedding", "row of the neighbour", "= table[row[i], j];", "= table[row[i] + 1, j];"),
    ("embedding", "not added up", "atomic_add(dtable[row[i], ", "atomic_exch(dtable[row[i], "),
    ("cumulative_sum", "output is zero", "copy(v, y[b * ROWS, 0]);", "fill(v, 0); copy(v, y[b * ROWS, 0]);"),
    ("cumulative_sum", "a block's own sum counted before it", "r < slice ?", "r <= slice ?"),
    ("cumulative_sum", "sums of the neighbour", "sums[line, place - 1 - t]", "sums[line, place - t]"),
    ("cumulative_sum", "sums forgotten between turns", "(place < workers ? 0 : before)", "0"),
    ("cumulative_sum", "sums of the row before", "if (t < workers && t < place) {", "if (t < workers) {"),
    ("cumulative_sum", "sums forgotten between tiles", "axis = 0, accumulate = true);", "axis = 0);"),
    ("cumulative_sum", "end of a stretch dropped", "reduce_sum(u, sum, axis = 0);",
     "parallel (j in STRETCH) v[j] = j == STRETCH - 1 ? 0 : u[j]; reduce_sum(v, sum, axis = 0);"),
    ("cross_entropy", "output is zero", ": top[i] - x[row, at] + log(sum[i]);", ": 0;"),
    ("cross_entropy", "maximum forgotten", ": top[i] - x[row, at]", ": -x[row, at]"),
    ("cross_entropy", "end of the row dropped", "e[i, j] = exp(v[i, j] - top[i]);",
     "e[i, j] = j < N - 9 ? exp(v[i, j] - top[i]) : 0;"),
    ("cross_entropy", "sum not rescaled, long rows", "sum[t] *= exp(top[t] - higher[t]);", ""),
    ("cross_entropy", "elements beyond a long row counted", "if (j < 0 || j >= N)", "if (j < 0)"),
    ("cross_entropy", "elements before a long row counted", "if (j < 0 || j >= N)", "if (j >= N)"),
    ("cross_entropy", "target of another row", "target[row];", "target[min(row + 1, M - 1)];"),
    ("histogram", "output is zero", "atomic_add(count[i], bins[i]);", "atomic_add(count[i], 0);"),
    ("histogram", "bins not cleared", "fill(bins, 0);", "fill(bins, 1);"),
    ("histogram", "last value dropped", "first + i < N &&", "first + i < N - 1 &&"),
    ("layer_norm_backward", "output is zero", "copy(dw, partial[b, 0, 0]);", "fill(dw, 0); copy(dw, partial[b, 0, 0]);"),
    ("layer_norm_backward", "mean of the gradient forgotten", "(n[i, j] * dot[i] + sum[i])", "n[i, j] * dot[i]"),
    ("layer_norm_backward", "mean of the gradient forgotten, long rows", "(g[j] - sum[0] / N - n[j]", "(g[j] - n[j]"),
    ("layer_norm_backward", "rows beyond the last counted", "scale[i] + shift[i];", "scale[i] + shift[i] + 1;"),
    ("layer_norm_backward", "last part dropped", "k in ceildiv(P, 32)", "k in ceildiv(P, 32) - 1"),
    ("layer_norm", "output is zero", "= (v[i, j] - mean[i]) * scale[i] * w[j] + bias[j];", "= 0;"),
    ("layer_norm", "mean not taken away", "reduce_sum(v, mean, axis = 1);", "fill(mean, 0.1 * C);"),
    ("layer_norm", "end of the row dropped", "square[i, j] = (v[i, j] - mean[i])",
     "square[i, j] = j >= C - 64 ? 0 : (v[i, j] - mean[i])"),
    ("layer_norm", "bias dropped", "scale[i] * w[j] + bias[j];", "scale[i] * w[j];"),
    ("layer_norm", "bias of long rows dropped", "* weight[j] + b[j];", "* weight[j];"),
    ("rmsnorm", "output is zero", "= v[i, j] * scale[i] * w[j];", "= 0;"),
    ("rmsnorm", "end of the row dropped", "square[i, j] = v[i, j] * v[i, j];",
     "square[i, j] = j < C - 128 ? v[i, j] * v[i, j] : 0;"),
    ("rmsnorm", "weight dropped", "v[i, j] * scale[i] * w[j];", "v[i, j] * scale[i];"),
    ("rmsnorm", "parts of long rows dropped", "reduce_sum(sums, sum, axis = 0);", ""),
    ("rotary", "output is zero", "= a[i, j] * c - b[i, j] * s;", "= 0;"),
    ("rotary", "turned the other way", "= b[i, j] * c + a[i, j] * s;", "= b[i, j] * c - a[i, j] * s;"),
    ("rotary", "angle of another position", "let at = position[t];", "let at = position[0];"),
    ("rotary_append", "queries are not rotated", "low[i, j] = first * c[j] - second * s[j];", ""),
    ("rotary_append", "keys not cached", "if (cached && head >= W - 2 * G && head < W - G) {", "if (cached && head >= W - 2 * G && head < W - 2 * G) {"),
    ("rotary_append", "the first page alone is filled", "let cached = at >= 0 && at < PAGES * PAGE;", "let cached = at >= 0 && at < PAGE;"),
    ("rotary_append", "angle of another position", "let angle = position[t];", "let angle = position[0];"),
    ("softmax_long", "output is zero", "y[row, j] = exp(x[row, j] - peak[0]) * scale;", "y[row, j] = 0;"),
    ("softmax_long", "sum not rescaled", "sum[t] *= exp(top[t] - higher[t]);", ""),
    ("softmax_long", "elements beyond the row counted", "if (k * TILE + TILE > N) {", "if (k < 0) {"),
    ("sum", "rows are zero", "reduce_sum(v, sum, axis = 1);", "fill(sum, 0);"),
    ("sum", "last tile of a long row dropped", "(k in ceildiv(N, TILE)) {", "(k in N / TILE) {"),
    ("sum", "last tile dropped", "k in ceildiv(ceildiv(N, TILE), P)", "k in ceildiv(ceildiv(N, TILE) - 1, P)"),
    ("sum", "parts dropped", "k in ceildiv(P, 1024)", "k in P / 1024"),
    ("top_k", "output is zero", "bitcast(bf16, u16(order >= 32768", "0 * bitcast(bf16, u16(order >= 32768"),
    ("top_k", "the largest again", "== top[i]) key[i, j] = 0;", "== top[i]) key[i, j] = top[i];"),
    ("top_k", "the last place", "+ (65535 - u32(j));", "+ (65535 - u32(N - 1 - j));"),
    ("top_k", "zeros that differ", "bits == 32768 ? 32768 : bits > 32768", "bits >= 32768"),
    ("softmax", "output is zero", "= exp(v[i, j] - top[i]) * sum[i];", "= 0;"),
    ("softmax", "end of the row dropped", "e[i, j] = exp(v[i, j] - top[i]);",
     "e[i, j] = j < C - 128 ? exp(v[i, j] - top[i]) : 0;"),
    ("softmax", "not normalised", "= exp(v[i, j] - top[i]) * sum[i];", "= exp(v[i, j] - top[i]);"),
    ("softmax", "a long row left out", "ticket[t] + i32(AHEAD * clusters);", "ticket[t] + i32(AHEAD * clusters) + 1;"),
    ("softmax", "row of another block", "copy(x[b * ROWS, 0], v);", "copy(x[max(b - 1, 0) * ROWS, 0], v);"),
    ("transpose", "output is zero", "copy(tile.T, y[j * T, i * T]);", "fill(tile, 0); copy(tile.T, y[j * T, i * T]);"),
    ("transpose", "not transposed", "copy(tile.T, y[j * T, i * T]);", "copy(tile, y[j * T, i * T]);"),
    ("transpose", "last tile skipped", "(i in ceildiv(M, T), j in ceildiv(N, T))", "(i in ceildiv(M, T), j in ceildiv(N, T) - 1)"),
    ("transpose", "last tile skipped, odd rows", "(i in ceildiv(M, 2 * T),", "(i in ceildiv(M, 2 * T) - 1,"),
    ("vector_add", "output is zero", "z[b * BLOCK + i] = x[b * BLOCK + i] + y[b * BLOCK + i];", "z[b * BLOCK + i] = 0;"),
    ("vector_add", "last block skipped", "b in ceildiv(N, BLOCK)", "b in ceildiv(N, BLOCK) - 1"),
    ("vector_add", "last element skipped", "parallel (i in BLOCK) {", "parallel (i in BLOCK) if (b * BLOCK + i < N - 1) {"),
]


def run(tilec, examples, folder, index):
    """None when the mutation was caught, else what happened."""
    example, what, old, new = MUTATIONS[index]
    text = (examples / f"{example}.tile").read_text()
    path = folder / f"{index}-{example}.tile"
    path.write_text(text.replace(old, new))
    target = ["--target=sm_90a"] if example in FOR_HOPPER else []
    code, output = until_failure([tilec, "test", *target, str(path)])
    return None if code == 1 and "FAIL" in output else f"{example}: {what}: exit {code}\n{output[-600:]}"


def without_mutation(examples):
    names = {path.stem for path in examples.glob("*.tile")}
    return [f"{name}: there is no mutation of it" for name in sorted(names - {row[0] for row in MUTATIONS})]


def other_texts(examples):
    texts = {path.stem: path.read_text() for path in examples.glob("*.tile")}
    for example, what, old, _ in MUTATIONS:
        if (count := texts[example].count(old)) != 1:
            yield f"{example}: {what}: the text `{old}` occurs {count} times"


def sample(count, seed):
    """The numbers of `count` mutations of each example."""
    of_example = {}
    for i, row in enumerate(MUTATIONS):
        of_example.setdefault(row[0], []).append(i)
    rng = random.Random(seed)
    return sorted(i for rows in of_example.values() for i in rng.sample(rows, min(count, len(rows))))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tilec")
    arguments.add_argument("examples", type=pathlib.Path)
    arguments.add_argument("-j", type=int, default=2, metavar="JOBS")
    arguments.add_argument("--only", metavar="EXAMPLE")
    arguments.add_argument("--sample", type=int, metavar="COUNT", help="so many of each example, by the seed in TILEC_TEST_SEED")
    arguments.add_argument("--texts", action="store_true", help="try none: each example has a mutation, and each text occurs in it")
    options = arguments.parse_args()

    gone = without_mutation(options.examples) + list(other_texts(options.examples))
    if options.texts or gone:
        print("\n".join(gone))
        return 1 if gone else 0
    chosen = sample(options.sample, os.environ.get("TILEC_TEST_SEED", "1")) if options.sample else range(len(MUTATIONS))
    chosen = [i for i in chosen if options.only in (None, MUTATIONS[i][0])]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for path in options.examples.glob("*.tile"):   # for imports
            (pathlib.Path(folder) / path.name).symlink_to(path.resolve())
        results = pool.map(lambda i: run(options.tilec, options.examples, pathlib.Path(folder), i), chosen)
        survivors = [result for result in results if result]
    print("\n".join(survivors))
    print(f"{len(chosen)} mutations, {len(survivors)} not caught")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
