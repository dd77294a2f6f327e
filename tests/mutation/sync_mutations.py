#!/usr/bin/env python3
"""Every barrier and wait that insert-sync placed is needed: each one is deleted in turn, and the emulator has to report a
race or a wrong result at one of the trip counts 0, 1, 2, 3 and many at least.

The fully lowered text of an example (`tilec opt`) is a program itself. Its tests are replaced by small ones whose shapes
give these trip counts. As it is, all of them pass; without any one of its synchronising statements, some do not. Where a
kernel has a variant with facts and a general one, this is done for the text as it is, and again for the general one alone
(a launch with aligned tensors might never choose it), and for each variant that is chosen by its cost.

A deletion from a kernel that no test launches says nothing: such a kernel is a problem of its own, and none is tried.

Kernels that are written with their synchronisation (for Hopper) are treated alike, as they are.

    sync_mutations.py TILEC SOURCES [-j JOBS] [--only EXAMPLE] [--case NAME | --list | --sample COUNT | --launches] [-v]     exit 0: each deletion was noticed
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from failing import until_failure

SYNC = re.compile(r"\b(barrier|barrier_arrive|cluster_barrier|peer_arrive|warp_sync|cp_async_commit|cp_async_wait|await|mbarrier_\w+|fence\w*|bulk_commit|"
                  r"bulk_wait|wgmma_fence|wgmma_commit|wgmma_wait|free_slot)\([^;{}]*\);")
KERNEL = re.compile(r"^(?P<attrs>(?:@[^\n]*\n)*)kernel (?P<name>\w+)(?:\[[^]]*\])?\(.*?^\}\n", re.M | re.S)
PROGRAM = re.compile(r"^(?:@[^\n]*\n)*program (?P<name>\w+)\(.*?^\}\n", re.M | re.S)
SEPARATE = "@separate"   # no attribute: kernels that a program among the variants launches
REFERENCE = re.compile(r"^reference (?P<name>\w+) \{.*?^\}\n", re.M | re.S)
TEST = re.compile(r"^test\b[^{;]*(\{[^\n]+\}[^;\n]*|\{\n.*?^\}[^;]*)?;\n?", re.M | re.S)   # its filling: in one line, or in several


@dataclasses.dataclass
class Case:
    """An example, the tunables that make it small, and the tests that give each trip count."""
    example: str
    defines: list
    tests: list
    program: str = None    # of tests/: the kernel is there as it shall be, for sm_90a
    target: str = "sm_80"
    source: str = None     # of tests/: the file in place of the example's
    first: str = None      # of this kernel's variants the first is kept, and its statements alone are deleted
    variant: int = 0       # or the one of this number
    kernel: str = None     # this kernel's statements alone are deleted
    left_out: str = None   # kernels with this text in their condition are not there
    held: tuple = ()       # (text, who): before this text these threads idle, so that others get as far ahead as barriers let them


SCHEDULES = 8   # of warps: a single one may be kind to a wait that is missing
# A block of keys that a warpgroup passes by: a warp lags before its wait, in some of the tests.
LAGS = "EXACT && t / 32 % 4 == 1"
PASSED_BY = (("mbarrier_wait(k_full[stage], parity);\n                    barrier(1 + wg", LAGS),
             ("mbarrier_wait(t_full[at], at_parity);\n                    barrier(1 + wg", LAGS))

# In attention_roles, with the scale that says so: a warp before it passes by a block of keys or values, or waits for queries.
LAGGING = tuple((before, "t / 32 == 1 && scale > 0.25") for before in (
    "@alone(3) mbarrier_wait(Ks_full[i64(Ks_slot)], Ks_parity);\n                        let slot = ",
    "@alone(4) mbarrier_wait(Vs_full[i64(Vs_slot)], Vs_parity);\n                        let slot_1 = ", "@alone(2) mbarrier_wait(Qs_full["))

# Statements that no trip count needs, with the proof: (example, kernel or title, target, of the general one alone, which of its text's,
# the statement) -> why.
A_STEP = "each tile of a worker has a k step (`count` is the least of two positive numbers), whose barriers lie between"
DECODE_2, DECODE_4 = (f"decode_pieces__D_64__PAGE_16__WARPS_{warps}" for warps in (2, 4))
A_BLOCK = "there are keys (`to` is positive), in whose step barriers lie between"
A_SEQUENCE = "a piece has a step of each sequence in it (`start` is below `end`), with barriers and a wait for the queries"
OTHERS = "a worker reads the parts of later workers only, and writes its own: what insert-sync cannot see from the indices"
JOINS = "the product joins the group of the next one, which every wait that looks for it finds over: kept, so that a wait counts products"
OWN_REGISTERS = "a peeled step's operand has registers of its own"
OWN_PLACES = "each way through a tile has a barrier behind its products, and a thread copies to where it has read the staged result itself"
SINGLE_STORE = "a CTA stores one tile, so that no store is under way: what lower-tile-op does not look for"
WHOLE = "the emulator ends a product for the whole warpgroup at once; the ISA promises a warp that waits its own part alone"
LAST_STEP = "behind the last step, which is the one with a mask in `queries`, slots are not filled again"
BEFORE_Q = "who gives back the slot of Q has given this one back before, and the thread has waited for the next Q in its place"
PASSED_LAST = "none waits for the slots behind the group's last step, which it passes by"
LAST_SECTION = "none enters a section behind the last one"
LAST_SLOT = "none waits for the slot that says that there are no more"
QUERIES = "the slot of the queries, given back behind this one, has been waited for"
NO_KEYS = "spans of other sequences: of those without keys, which no piece has"
NOT_TOUCHED = "nothing touches the registers since the fence before; ptxas wants one behind each wait (C7519)"
NONE_STORED = "stores are waited for at a sequence's end: lowering does not tell their slot from the channel's others"
IN_STEP = "the warp does nothing with the slot since a product, a shuffle or a barrier"
HANDED_ON = "who hands on the weights has waited for the same slot"
TICKETS = "an atomic_add and loads with an order do not race"
SEEN = "each thread that reads parts of others has seen the ticket itself"
# attention_roles: groups take turns at the tensor cores; those without queries for a block pass it by, and take their turn.
IN_ORDER = "group 0, whose turn comes first, has waited for the slot"
GIVEN_IN_ORDER = "group 2, which passes nothing by, gives the slot back behind a turn that all warps of this group begin"
ONE_PASSED = "no group passes by a second block of a tile"
NOT_FIRST = "group 0, which alone waits for keys, has no masked step but its first"
LAST_VALUES = "nothing is loaded behind a CTA's last product"
PUBLISHED = "a barrier comes behind the other mbarriers, too"
ENTERED = "who frees the slot with this warpgroup has entered a section that begins when all its warps have waited"
VARLEN = ("attend__D_64__BM_128__tiles", "attend__D_64__BM_192__tiles")
CLAIMED = "the lanes meet at the arrival for `claimed`, behind the read"
SOME_KEYS = "each tile has a block of keys, and the loop over blocks claims"
NO_PAIRS = "causal tiles have as many groups as there are"
WAIT_K, WAIT_V = (f"mbarrier_wait({name}s_full[i64({name}s_slot)], {name}s_parity);" for name in "KV")
WAIT_Q, TELL_Q = "mbarrier_wait(Qs_empty[i64(Qs_slot)], Qs_parity);", "mbarrier_expect(Qs_full[slot], bytes);"
GIVE_V = "mbarrier_arrive(Vs_empty[v]);"
# An arrival of a warp for what the lane that arrives has done alone, or right behind another arrival of the warp.
LANE_BEFORE = re.compile(r"if \((t (?:== 0|% 32 == 0))\)(?: \{\s*(?:@predicated)?)?[^;{]*;\s*\}?\s*$")


def arrives_alone(text, match):
    lane = match.group(0) == "warp_sync();" and LANE_BEFORE.search(text, max(0, match.start() - 300), match.start())
    arrival = rf"\s*if \({re.escape(lane.group(1))}\) (?:\{{\s*@predicated )?mbarrier_arrive" if lane else None
    return lane and re.match(arrival, text[match.end():])


# In attention_varlen, of many heads: a warp before it waits for the queries of a sequence without keys.
NO_KEYS_LAG = (("mbarrier_wait(Qs_full[", "t / 32 == 1 && H > 10"),)

PROOFS = {("attention_pieces__D_64__BM_16__STEPS_2", "sm_90a", False, 14, "barrier();"): A_BLOCK,
          ("gemm_stream_k", "sm_80", False, 0, "cp_async_wait(0);"): A_STEP,
          ("gemm_stream_k", "sm_80", False, 1, "barrier();"): OWN_PLACES,
          ("gemm_stream_k", "sm_80", True, 4, "barrier();"): OTHERS,
          ("gemm_stream_k", "sm_90a", False, 12, "barrier();"): OTHERS,
          ("gemm_stream_k", "sm_90a", True, 4, "barrier();"): OTHERS,
          ("attention_backward", "sm_90a", False, 25, "wgmma_commit();"): JOINS,
          ("attention_backward", "sm_90a", False, 38, "mbarrier_wait(to1_empty[at % 2], (at / 2 + 1) % 2);"): BEFORE_Q,
          ("attention_backward", "sm_90a", False, 72, "mbarrier_wait(to0_empty[at % 2], (at / 2 + 1) % 2);"): BEFORE_Q,
          ("attention_backward", "sm_90a", False, 47, "mbarrier_wait(Gs_empty[at % 2], (at / 2 + 1) % 2);"): BEFORE_Q,
          ("attention_backward", "sm_90a", False, 99, "mbarrier_wait(Gs_empty[at % 2], (at / 2 + 1) % 2);"): BEFORE_Q,
          ("gradients", "sm_90a", False, 20, "wgmma_fence();"):
              "both scores are wgmma's since the fence before, but ptxas wants a fence in each block that a wait begins (C7519)",
          ("queries", "sm_90a", False, 27, "barrier();"): WHOLE,
          ("keys", "sm_90a", False, 39, "mbarrier_arrive(Gs_empty[slot]);"): LAST_STEP,
          ("keys", "sm_90a", False, 40, "barrier();"): WHOLE,
          ("keys", "sm_90a", False, 54, "mbarrier_wait(Qs_full[m % 2], m / 2 % 2);"): "P came of Q, for which `values` has waited",
          ("keys", "sm_90a", False, 59, "barrier();"): WHOLE,
          ("queries", "sm_90a", False, 35, "mbarrier_arrive(Vs_empty[0]);"): LAST_STEP,
          ("queries", "sm_90a", False, 39, "mbarrier_arrive(Ks_empty[k]);"): LAST_STEP,
          ("queries", "sm_90a", False, 40, "barrier();"): WHOLE,
          ("attention_fp8_roles", "sm_80", False, 47, "barrier(5, W * 128);"): "takes the last arrival, so that none is left",
          ("attention_fp8_roles", "sm_80", False, 51, "warp_sync();"): "ptxas wants it, or the warps that transpose spill",
          (DECODE_2, "sm_80", False, 5, "cp_async_wait(2);"): A_SEQUENCE,
          (DECODE_4, "sm_80", False, 5, "cp_async_wait(1);"): A_SEQUENCE,
          ("attention_paged", "sm_80", False, 6, "cp_async_commit();"): "the commit of the first step's tiles is for the queries, too",
          (DECODE_2, "sm_80", False, 13, "barrier();"): A_SEQUENCE,
          (DECODE_2, "sm_80", True, 8, "barrier();"): A_SEQUENCE,
          **{(kernel, "sm_90a", False, 4, "barrier();"): PUBLISHED for kernel in VARLEN},
          **{(kernel, "sm_90a", False, 20, "barrier();"): CLAIMED for kernel in VARLEN},
          ("attention D=64 BM=192 BN=64 CAUSAL=true", "sm_90a", False, 58, "barrier(wg + 4, 128);"): ENTERED,
          ("attend__D_64__BM_192__tiles", "sm_90a", False, 74, "barrier(wg + 4, 128);"): ENTERED,
          ("gemm_swiglu", "sm_90a", False, 8, "wgmma_commit();"): JOINS,
          ("gemm_swiglu BM=64 BN=64 STAGES=3 (one of several)", "sm_90a", False, 15, "wgmma_commit();"): JOINS,
          ("gemm_w8", "sm_90a", False, 13, "wgmma_commit();"): JOINS,
          ("gemm_w8", "sm_90a", False, 18, "wgmma_wait(1);"): OWN_REGISTERS,
          **{(f"converted {defines}", "sm_90a", False, number, "wgmma_commit();"): JOINS
             for defines, number in (("X=2 Y=1 BN=128", 20), ("X=2 Y=2 BN=64", 27), ("X=2 Y=2 BN=64", 49))},
          **{(f"halves BN={bn} BM=32", "sm_90a", False, number, "wgmma_commit();"): JOINS for bn, number in ((64, 13), (64, 27), (128, 13))},
          ("halves BN=128 BM=32", "sm_90a", False, 18, "wgmma_wait(1);"): OWN_REGISTERS,
          ("halves BN=128 BM=32", "sm_90a", False, 31,
           "mbarrier_arrive(As_empty[i64(As_slot + (As_slot <= 0 ? i32(3) : i32(-1)))]);"): "a CTA computes one tile, whose last slots nothing fills again",
          ("gated", "sm_90a", False, 31, "mbarrier_wait(Bs_empty[i64(Bs_slot)], Bs_parity);"): "the last arrivals at Gs come behind those at Bs",
          ("gated", "sm_90a", False, 38, "wgmma_commit();"): JOINS,
          ("products", "sm_90a", False, 13, "bulk_wait(0);"): SINGLE_STORE,
          ("products", "sm_90a", False, 14, "barrier();"): SINGLE_STORE,
          ("products", "sm_90a", False, 38, "barrier();"): WHOLE,
          ("products", "sm_90a", False, 79, "mbarrier_wait(sections_next[0], sections_parity);"): "the first section waits for none",
          ("products", "sm_90a", False, 83, "warp_sync();"): LAST_SECTION,
          ("products", "sm_90a", False, 84, "mbarrier_arrive(sections_next[0]);"): LAST_SECTION,
          ("latent_columns", "sm_90a", False, 26, "barrier();"): "each sequence in a piece has a block, with barriers",
          ("latent_columns", "sm_90a", False, 33, "warp_sync();"): LAST_SLOT,
          ("latent_columns", "sm_90a", False, 34, "mbarrier_arrive(Qs_empty[q_2]);"): LAST_SLOT,
          ("latent_columns", "sm_90a", False, 41, "mbarrier_wait(Cuts_empty[i64(Cuts_slot)], Cuts_parity);"): QUERIES,
          ("latent_columns", "sm_90a", False, 48, "barrier();"): NO_KEYS} | {
    (f"latent_rows__D_576__E_512__PAGE_64__MERGE_{merge}", "sm_90a", False, position, statement): why
    for why, statement, with_merge, without in (
        (JOINS, "wgmma_commit();", (28, 29, 51), (28, 29, 51)), (NOT_TOUCHED, "wgmma_fence();", (31, 43, 53), (31, 43, 53)),
        (NONE_STORED, "bulk_wait(0);", (46, 98), (46, 90)), (WHOLE, "barrier();", (64, 82, 122), (64, 74, 106)),
        (IN_STEP, "warp_sync();", (47, 62, 86, 89, 99, 126, 129), (47, 62, 78, 81, 91, 110, 113)),
        (HANDED_ON, "mbarrier_wait(Rs_full[i64(Rs_slot)], Rs_parity);", (97, 101), (89, 93)),
        (TICKETS, "barrier();", (77, 79, 117, 119), ()), (SEEN, "barrier();", (81, 121), ()),
        (LAST_SLOT, "warp_sync();", (92, 132), (84, 116)), (LAST_SLOT, "mbarrier_arrive(Qs_empty[0]);", (93, 133), (85, 117)),
        (QUERIES, "mbarrier_wait(Cuts_empty[i64(Cuts_slot)], Cuts_parity);", (144,), (128,)), (NO_KEYS, "barrier();", (), (135,)))
    for merge, positions in ((1, with_merge), (0, without)) for position in positions} | {
    (f"attention_roles {defines} LONG=1", "sm_90a", False, position, statement): why
    for defines, statements in (
        ("D=64 CAUSAL=false", ((27, WAIT_K, IN_ORDER), (30, WAIT_V, IN_ORDER), (46, WAIT_V, IN_ORDER), (97, GIVE_V, LAST_VALUES),
                               (106, "barrier();", CLAIMED), (110, "barrier();", SOME_KEYS))),
        ("D=64 CAUSAL=true", ((28, "barrier();", GIVEN_IN_ORDER), (44, "barrier(g + 1, 256);", ONE_PASSED),
                              (45, "barrier_arrive((g == 2 ? 0 : g + 1) + 1, 256);", ONE_PASSED), (47, "barrier();", GIVEN_IN_ORDER),
                              (74, WAIT_K, NOT_FIRST), (78, WAIT_V, IN_ORDER), (109, GIVE_V, LAST_VALUES), (118, "barrier();", CLAIMED),
                              (122, "barrier();", SOME_KEYS), (128, WAIT_Q, NO_PAIRS), (129, TELL_Q, NO_PAIRS))),
        ("D=128 CAUSAL=true", ((98, GIVE_V, LAST_VALUES), (108, "barrier();", CLAIMED), (112, "barrier();", SOME_KEYS),
                               (118, WAIT_Q, NO_PAIRS), (119, TELL_Q, NO_PAIRS))),
        ("D=256 CAUSAL=false", ((46, WAIT_K, IN_ORDER), (51, WAIT_V, IN_ORDER), (85, GIVE_V, LAST_VALUES),
                                (105, "barrier_arrive((g == 1 ? 0 : g + 1) + 1, 256);", LAST_SECTION), (107, "barrier();", CLAIMED),
                                (111, "barrier();", SOME_KEYS))))
    for position, statement, why in statements} | {
    ("queries", "sm_90a", False, position, statement): PASSED_LAST for position, statement in (
        (32, "mbarrier_wait(Ks_full[n % 2], n / 2 % 2);"), (33, "barrier();"), (34, "mbarrier_arrive(Ks_empty[slot]);"),
        (35, "mbarrier_wait(Vs_full[0], n % 2);"), (36, "barrier();"), (37, "mbarrier_arrive(Vs_empty[0]);"))} | {
    ("attention_backward", "sm_90a", False, position, "wgmma_commit();"): JOINS for position in (43, 46, 77, 80)} | {
    ("weighted_sums", "sm_90a", False, position, "barrier();"):
        "who set the mbarrier up is the only one who arrives before the next barrier; racecheck warns without" for position in (4, 23, 30)} | {
    ("weighted_sums", "sm_90a", False, 49, "barrier();"):
        "a thread reads what it copied itself; a prologue of 39 copies is played as a shorter one, which is safe"}

# Statements that are needed, but no test shows it: without them a warp that lags by a whole ring misses a phase.
NOT_SHOWN = {("attention_fp8_roles", "sm_80", False, 29, "barrier(1 + wg, 128);")}

# A fence behind a wait for a tile that stands between two products, of the same accumulators as before: nothing touches the
# registers since the fence before, but ptxas wants one behind the loop of each wait (C7519).
BETWEEN = re.compile(r"wgmma_commit\(\);\s*(if \(wg == 0\) |@alone\(\d+\) )?mbarrier_wait\([^;{}]*\);\s*(let \w+ = [^;{}]*;\s*)?"
                     r"(\w+_slot = [^;{}]*;\s*if \([^{}]*\) \{[^{}]*\}\s*)?\Z")

# A commit that the one behind the next store takes in.
JOINED = re.compile(r"(?:(?!bulk_wait|bulk_commit)[\s\S])*bulk_commit\(\);")

# A wait for all groups behind a loop of products that needs none, for what lowering does with the loop after insert-sync: copies for
# steps past the end are left out, so that the last groups are empty (insert-sync plays this and filling with zeros); or the loop
# loads the next step's fragments, the last step too, and has waited for all groups before that.
EMPTY_GROUPS = re.compile(r"if \(\w+ \+ \d+ < [^{};]*\) \{(?:\s|\{|let [^;]*;)*cp_async\("
                          r"|cp_async_wait\(0\);\s*barrier\(\);[^;]*ldmatrix\([^;]*min\(\w+ \+ 1, ")


FEW_ROWS = "M <= 32 &&"   # what gemm.tile imports, which has cases of its own
MIDDLE, WIDE = ["FEW_COLUMNS=0"], ["FEW_COLUMNS=0", "MANY_COLUMNS=0"]


def gemm_tests(kernel, step, rest=""):
    """Trip counts 0, 1, 2, 3 and many, with facts (K a multiple of 8) and without."""
    counts = [0, step, 2 * step, 3 * step, 7 * step]
    shapes = [(64, 64, k) for k in counts] + [(63, 61, k - 3 if k else 0) for k in counts]
    return [f"test {kernel} (M = {m}, N = {n}, K = {k}{rest}) tolerance 2e-2;" for m, n, k in shapes]


def split_tests(kernel, step, rest=""):
    """For kernels in roles: also one tile of a block, and several in turn; where N is odd, threads store the results. K = 0 and odd K go to
    the general variant, or to the kernel behind copies, which is the same."""
    shapes = [(64, 64, step)] + [(832, n, k * step) for n in (64, 61) for k in (1, 2, 3, 7)]
    return [f"test {kernel} (M = {m}, N = {n}, K = {k}{rest}) tolerance 2e-2;" for m, n, k in shapes]


def attention_tests():
    tests = []
    for causal in (False, True):
        # T = 0 has no answer (nothing to normalise by), so the loop runs at least once.
        for s, t in [(64, 1), (64, 64), (64, 128), (64, 192), (64, 300)]:
            if causal:
                s = t
            tests.append(f"test attention (B = 1, H = 1, S = {s}, T = {t}, D = 64, scale = 0.125) tolerance 2e-2;")
    return tests


LATENT = {"D": 576, "E": 512, "PAGE": 64}
MANY = [20, 150, 64, 0, 1] * 4   # several sequences in each piece: more than there are slots for


# By hand: several tiles for each worker (there are four), and steps that wrap the ring within a tile and across them.
CASES = [
    Case("attention", ["D=64", "BM=64", "BN=64"], attention_tests()[:5], kernel="attention"),
    Case("attention", ["D=64", "BM=64", "BN=64", "CAUSAL=true"], attention_tests()[5:], kernel="attention"),
    *(Case("attention", ["D=64", f"BM={m}", "BN=64", f"CAUSAL={causal}"], [
           f"test attention (B = 1, H = {h}, S = {s}, T = {t}, D = 64, scale = 0.125) tolerance 2e-2;" for h, s, t in shapes],
           target="sm_90a", kernel="attention")
      for m, causal, shapes in ((64, "false", ((1, 64, 64), (9, 64, 300))), (128, "true", ((1, 128, 200), (1, 300, 300), (3, 300, 300))))),
    Case("attention", ["D=64", "BM=192", "BN=64", "CAUSAL=true"], [   # three groups, which leave out steps
        f"test attention (B = 1, H = {h}, S = {s}, T = {s}, D = 64, scale = 0.125) tolerance 2e-2;" for h, s in ((1, 192), (9, 300))],
         target="sm_90a", kernel="attention"),
    Case("attention", ["D=128", "BM=128", "BN=176"], [   # results leave by way of the queries' tile
        f"test attention (B = 1, H = {h}, S = 128, T = {t}, D = 128, scale = 0.125) tolerance 2e-2;" for h, t in ((1, 64), (5, 600))],
         target="sm_90a", kernel="attention"),
    # Few tiles: four CTAs at most, each with the keys of a piece. Heads of a group: rows that threads gather.
    *(Case("attention", ["D=64", "BN=64", "PIECE=16", f"GROUP={group}"], [
        f"test attention (B = 1, H = {h * group}, S = {s}, T = {t}, D = 64, scale = 0.125) tolerance 2e-2;" for h, s, t in shapes],
           target=target, kernel="attention_pieces__D_64__BM_64__STEPS_3")
      for target in ("sm_80", "sm_90a")
      for group, shapes in ((1, ((1, 128, 64), (1, 40, 300), (1, 128, 600), (2, 40, 1200))),
                            (2, ((1, 64, 100), (1, 64, 400), (2, 20, 1200), (9, 20, 300))))),
    # Few queries, whose keys threads copy, or TMA: one step, a few, many.
    *(Case("attention", [f"D={d}", f"GROUP={group}"], [
        f"test attention (B = 1, H = {h * group}, S = {s // group}, T = {t}, D = {d}, scale = 0.125) tolerance 2e-2;" for h, s, t in shapes],
           target=target, kernel=f"attention_pieces__D_{d}__BM_16__STEPS_{steps}")
      for steps, target, d, shapes in (
          (1, "sm_80", 64, ((1, 4, 30), (1, 16, 60))), (1, "sm_90a", 64, ((1, 4, 30), (9, 16, 60))),
          (2, "sm_90a", 64, ((1, 16, 70), (9, 6, 250), (2, 2, 500))), (2, "sm_90a", 128, ((1, 16, 70), (2, 6, 250))),
          (3, "sm_80", 64, ((1, 4, 600), (1, 2, 1200))), (3, "sm_90a", 64, ((1, 4, 600), (1, 2, 1200), (140, 2, 250))),
          (3, "sm_90a", 128, ((1, 4, 30), (1, 2, 1200))))
      for group in (1, 2)),
    Case("attention", ["D=64"], [
        f"test attention_sum (B = 1, H = 2, S = 3, P = {pieces}, D = 64) {{ for (b in B, h in H, i in S, p in P) {{ "
        f"weight[b, h, i, p, 0] = (p * 5 + i) % 7; weight[b, h, i, p, 1] = 1 + p % 3; }} }} tolerance 1e-2;" for pieces in (1, 16, 40, 120)],
         kernel="attention_sum"),
    Case("attention_window", ["D=64", "BM=128", "BN=64"], [
        f"test attention_window (B = 1, H = {h}, G = 1, S = {s}, T = {t}, D = 64, scale = 0.125, cap = 1, window = {window}) tolerance 2e-2;"
        for h, s, t, window in ((1, 100, 100, 1000), (5, 130, 330, 250))], target="sm_90a"),
    *(Case("attention_varlen", [f"D={d}", f"BN={keys}", f"LONG={least}", "CAUSAL=true"], [
        f"test attention_varlen (H = {h}, G = 1, N = {n}, M = {n + 96}, E = 4, D = {d}, longest = {n - 34}, scale = 0.125) "
        "{ for (b in E) { q_start[b] = b == 0 ? 0 : b < 3 ? 34 : N; k_start[b] = b < 2 ? 0 : b < 3 ? q_start[b] : M; } } tolerance 2e-2;"
        for h, n in ((1, 162), (6, 290), (16, 162))], target="sm_90a", kernel=f"attend__D_{d}__BM_{rows}__tiles", held=NO_KEYS_LAG)
      for d, rows, keys, least in ((64, 128, 64, 2048), (64, 192, 64, 1))),
    Case("gemm_w8", ["BM=16", "BN=64", "BK=128", "STAGES=3"], target="sm_90a", tests=[
        f"test gemm_w8 (M = 16, N = {n}, K = {k}) tolerance 2e-2;"
        for n, k in ((64, 128), (832, 128), (832, 256), (832, 896), (829, 128), (829, 256), (829, 896))]),
    *(Case("converted", [f"X={x}", f"Y={y}", f"BN={bn}"], [
        f"test converted (M = {m}, N = {n}, K = {k}, G = {-(-k // 128)}) tolerance 3e-2;" for m, n, k in shapes],
           target="sm_90a", source="programs/converted_operands.tile", kernel="converted")
      for x, y, bn, shapes in ((2, 1, 128, ((64, 256, 64), (640, 512, 448))), (2, 2, 64, ((128, 128, 64), (640, 256, 448))))),
    *(Case("halves", [f"BN={bn}", "BM=32"], [f"test halves (M = 32, N = {n}, K = {k}, G = {-(-k // 128)}) tolerance 3e-2;" for n, k in shapes],
           target="sm_90a", source="programs/converted_operands.tile", kernel="halves")
      for bn, shapes in ((64, ((64, 64), (128, 896))), (128, ((128, 64), (256, 896))))),
    Case("gemm_fp8_blocks", ["BM=128", "BN=64", "STAGES=3"], target="sm_90a", tests=[
        f"test gemm_fp8_blocks (M = {m}, N = 64, K = {k}) tolerance 2e-2;" for m, k in ((128, 128), (1664, 256), (1664, 896))]),
    Case("attention_fp8", ["D=64", "BM=128", "BN=64"], [
        f"test attention_fp8 (B = 1, H = {h}, S = {s}, T = {t}, D = 64, scale = 0.125) "
        f"{{ for (h in H) {{ q_scale[0, h] = 1; k_scale[0, h] = 0.5; v_scale[0, h] = 2; }} }} tolerance 1.2e-1;"
        for h, s, t in ((1, 128, 40), (5, 128, 300))], target="sm_90a"),
    Case("center_columns", ["M=48"], [f"test center_columns (M = 48, N = {n}, ldx = {n + pad}) tolerance 1e-3;"
                                      for n in (1, 32, 96) for pad in (0, 3)]),
    Case("gemm", ["BM=64", "BN=64", "STAGES=3"], gemm_tests("gemm", 64), left_out=FEW_ROWS),
    Case("gemm", ["BM=64", "BN=64", "STAGES=2"], gemm_tests("gemm", 64), left_out=FEW_ROWS),
    Case("gemm", ["BM=64", "BN=64", "STAGES=4"], gemm_tests("gemm", 64), left_out=FEW_ROWS),
    Case("gemm", [], gemm_tests("gemm", 64), left_out=FEW_ROWS),
    Case("gemm", ["BM=64", "BN=64", "BK=64", "STAGES=3"], split_tests("gemm", 64), target="sm_90a", left_out=FEW_ROWS),
    Case("gemm", ["BM=64", "BN=64", "BK=64", "STAGES=2"], split_tests("gemm", 64), target="sm_90a", left_out=FEW_ROWS),
    *(Case("gemm_few_rows", defines, [f"test gemm (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in shapes], target="sm_90a",
           first="gemm", variant=variant)
      for variant, defines, shapes in (
          (0, WIDE, ((2, 40, 270), (1, 2, 530))), (1, [], ((2, 40, 270), (1, 2, 1530))), (2, [], ((7, 40, 270), (3, 2, 900))),
          (6, [], ((20, 9, 1333), (17, 30, 2051))), (7, WIDE, ((4, 300, 77), (3, 40, 515))), (10, WIDE, ((9, 60, 1100),)),
          (11, WIDE, ((27, 30, 1035),)), (13, MIDDLE + ["LARGE_B=0"], ((12, 40, 700),)), (16, MIDDLE, ((16, 130, 334),)))),
    Case("softmax_long", ["WIDTH=256"], ["test softmax_long (M = 2, N = 1000) tolerance 1e-5;",
                                         "test softmax_long (M = 2, N = 1500) tolerance 1e-5;",
                                         "test ranks (M = 2, N = 4) { for (i in M, j in N) x[i, j] = i32(i * N + j); } "
                                         "tolerance 0;",
                                         "test told (N = 6) { for (b in N) flag[b] = 0; } tolerance 1e-6;"],
         target="sm_90a", source="programs/clusters.tile"),
    Case("sums", [], ["test sums (M = 32, N = 64) tolerance 1e-5;", "test swapped (M = 16) tolerance 1e-6;",
                     "test row_sums (M = 32) tolerance 1e-5;"],
         target="sm_90a", source="programs/peer_tiles.tile"),
    Case("gemm", ["BM=64", "BN=112", "BK=64", "STAGES=2"], [   # the last columns take turns with the others at the store's slots
        f"test gemm (M = {m}, N = {n}, K = {k}) tolerance 2e-2;"
        for n in (112, 109) for m, k in ((64, 64), (832, 128), (832, 448))], target="sm_90a", left_out=FEW_ROWS),
    Case("product", [], [f"test product (M = {m}, N = {n}, K = {k}) tolerance 2e-2;"
                         for m, n, k in ((64, 64, 64), (64, 64, 256), (130, 72, 2600))]
         + [f"test few_rows (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in ((16, 64, 64), (18, 136, 2600), (16, 66, 300))]
         + [f"test {name} (M = {m}, N = {n}, K = {k}) tolerance 2e-2;"
            for name, m, n, k in (("thirds", 64, 64, 64), ("thirds", 130, 72, 2600), ("epilogue", 64, 64, 64), ("epilogue", 130, 72, 2600),
                                  ("epilogue", 66, 7, 300), ("epilogue_few", 16, 64, 64), ("epilogue_few", 18, 136, 2600))],
         target="sm_90a", source="lit/passes/split-k.tile"),
    Case("pairs", [], [f"test pairs (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in ((256, 64, 64), (256, 64, 960), (640, 200, 456))]
         + [f"test fours (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for n in (128, 125) for m, k in ((128, 64), (640, 328))]
         + ["test uneven (M = 192, N = 64, K = 256) tolerance 2e-2;", "test uneven (M = 192, N = 192, K = 256) tolerance 2e-2;",
            "test uneven (M = 832, N = 64, K = 832) tolerance 2e-2;"]
         + [f"test common (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in ((256, 64, 64), (256, 64, 960), (640, 200, 456), (640, 208, 328))]
         + [f"test single (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in ((64, 128, 64), (64, 128, 960), (130, 200, 456))],
         target="sm_90a", source="lit/passes/multicast.tile"),
    *(Case("corner", [f"BM={rows}"], [f"test corner (M = {m}, N = 64, K = {k}, BM = {rows}) tolerance 1e-2;" for m, k in ((rows, 64), (400, 1600))],
           target="sm_90a", source="programs/small_products.tile", kernel="corner") for rows in (64, 192)),
    Case("product", [], [f"test product (M = {m}, N = {n}, K = {k}) tolerance 2e-2;"
                         for n in (128, 201) for m, k in ((64, 64), (70, 136), (328, 456))],
         target="sm_90a", source="programs/rows_anywhere.tile", kernel="product"),
    Case("added", [], [f"test added (M = {m}, N = {n}, K = {k}) tolerance 1e-2;" for m, n, k in ((128, 64, 64), (200, 100, 200), (520, 68, 136))],
         target="sm_90a", source="lit/passes/strips-and-columns.tile", kernel="added"),
    Case("gated", [], [f"test gated (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, k in ((256, 128, 64), (256, 128, 448), (640, 264, 200))],
         target="sm_90a", source="programs/multicast.tile", kernel="gated"),
    Case("weighted_sums", [], [f"test weighted_sums (P = {p}, M = 32, N = {n}) tolerance 1e-5;" for p, n in ((1, 64), (3, 128), (2, 448))]
         + ["test doubled (M = 320, N = 64) tolerance 0;", "test two_writers (M = 64, N = 64) tolerance 1e-4;",
            "test until (P = 4, M = 32, N = 192) { for (p in P) stop[p] = i32((p + 1) % 4); } tolerance 1e-5;",
            "test again (M = 64, N = 64) tolerance 1e-5;", "test slots (M = 8, N = 1600) tolerance 1e-5;"],
         target="sm_90a", source="programs/tma_simple.tile"),
    Case("moved3", [], ["test moved3 (B = 4, M = 9, N = 68) tolerance 0;", "test moved4 (A = 2, B = 4, M = 7, N = 32) tolerance 0;",
                        "test moved_plain (B = 3, M = 6, N = 32) tolerance 0;", "test narrower (B = 2, M = 9, N = 32) tolerance 0;",
                        "test heads (B = 1, S = 20, H = 2, D = 64, kb = 2560, kh = 128) tolerance 1e-3;",
                        "test added (B = 2, M = 8, N = 64) tolerance 1e-5;", "test depthwise (B = 1, H = 7, W = 9, C = 32) tolerance 1e-5;"]
         + ["test moved5 (A = 2, B = 2, C = 1, M = 5, N = 16) { for (a in A, b in B, c in C, i in M, j in N) x[a, b, c, i, j] = 7; } tolerance 0;"]
         + ["test tall (M = 700, N = 72) tolerance 0;"]
         + [f"test ring3 (B = 2, M = 16, N = {n}) tolerance 1e-5;" for n in (64, 128, 192, 448)],
         target="sm_90a", source="programs/tma_boxes.tile"),
    Case("products", [], [f"test products (M = {m}, N = 64, K = {k}) tolerance 2e-2;" for m, k in ((64, 8), (128, 64), (128, 192), (136, 584))]
         + [f"test mixed (M = {64 * k}, K = {k}) tolerance 2e-2;" for k in (1, 2, 7)]
         + [f"test own (N = {n}) tolerance 1e-5;" for n in (0, 1, 2, 3, 9)]
         + [f"test peers (M = 2, N = {128 * k}, K = {k}) tolerance 1e-4;" for k in (1, 2, 5)]
         + [f"test in_sections (N = {n}) {{ for (n in N, j in 64) x[n, j] = i32(n * 100 + j); }} tolerance 0;" for n in (2, 4, 18)]
         + ["test unequal () { for (i in 2) y[i] = 0; } tolerance 0;"],
         target="sm_90a", source="lit/passes/lower-channels.tile"),
    Case("row_sums", [], [f"test row_sums (M = 2, N = {n}) tolerance 1e-4;" for n in (512, 1024, 4096)]
         + ["test halves (M = 16, N = 144) tolerance 0;", "test in_a_ring (M = 2) tolerance 0;", "test in_a_ring (M = 15) tolerance 0;"],
         target="sm_90a", source="programs/bulk_copies.tile"),
    Case("scaled_sums", [], ["test scaled_sums (S = 2, M = 64, N = 64) tolerance 1e-5;"]
         + [f"test repeated (S = {s}, M = 32, N = 64) tolerance 1e-5;" for s in (1, 2, 4)]
         + [f"test passed_{how} (M = 32, N = {n}) tolerance 1e-6;" for how in ("on", "by_tma") for n in (64, 132, 448)]
         + ["test columns (M = 3, N = 256) tolerance 1e-5;", "test crowded (M = 5, N = 260) tolerance 1e-5;",
            "test by_row (M = 70, N = 72, T = 5) { for (i in M) number[i] = i32(i % T); } tolerance 1e-5;"]
         + [f"test pingpong_products (M = {m}, N = {n}, K = {k}, S = {s}) tolerance 1e-5;" for m, n, k, s in ((128, 32, 64, 1), (832, 32, 400, 2), (100, 67, 137, 1))]
         + [f"test cooperative_products (M = {m}, N = {n}, K = {k}) {{ for (m in M, k in K) A[m, k] = (m + k) % 3 - 1; "
            f"for (n in N, k in K) B[n, k] = k * n % 2; for (m in M, n in N) C[m, n] = 1; }} tolerance 4e-3;"
            for m, n, k in ((128, 64, 64), (1280, 64, 136), (100, 67, 137))]
         + [f"test partial_products (M = 64, N = {n}, K = {k}) {{ for (m in M, k in K) A[m, k] = (m + k) % 3 - 1; "
            f"for (k in K, n in N) B[k, n] = k * n % 2; for (m in M, n in N) C[m, n] = 1; }} tolerance 0;" for n, k in ((64, 128), (61, 67))]
         + [f"test counted (B = {b}, H = 2, M = 64, N = 64) {{ for (b in B, i in M, j in N) x[b, i, j] = i32(b * i + j); "
            f"for (h in H, i in M, j in N) y[h, i, j] = i32(h); }} tolerance 0;" for b in (2, 400)],
         target="sm_90a", source="programs/tile_sums.tile"),
    Case("gemm_bias_gelu", ["BM=64", "BN=64", "BK=32"], gemm_tests("gemm_bias_gelu", 32)),
    Case("gemm_split_k", ["BM=64", "BN=64", "BK=64", "STAGES=2"],   # whole, and from 2048 on in parts
         [f"test gemm_split_k (M = {m}, N = {n}, K = {k}) tolerance 2e-2;" for m, n, d in ((64, 64, 0), (63, 61, 3))
          for k in (8, 128 - d, 192 - d, 448 - d, 2048 + d)]
         + [f"test gemm_split_k_sums (M = {m}, N = {n}, K = {k}) tolerance 1e-4;"   # few tiles, and many
            for m, n, d in ((64, 64, 0), (63, 61, 3), (576, 64, 0), (570, 61, 3)) for k in (8, 128 - d, 192 - d, 448 - d)]),
    Case("gemm_grouped", ["BM=128", "BN=64", "BK=64", "STAGES=2"],
         [f"test gemm_grouped (M = {m}, N = 64, K = {k}, G = {g}) "
          f"{{ for (g in G + 1) offsets[g] = min(g * {each}, {m}); }} tolerance 2e-2;"
          for m, k, g, each in ((128, 64, 1, 128), (2304, 72, 9, 256), (1200, 200, 9, 150))], target="sm_90a"),
    *(Case("split_k", [], [f"test split_k (M = {m}, N = {n}, K = {k}) tolerance 1e-2;"
                           for m, n, d in ((64, 64, 0), (63, 61, 3), (192, 128, 0)) for k in (8, 256 - d, 512 - d, 1088 - d)],
           source="programs/split_k.tile", target=target) for target in ("sm_80", "sm_90a")),
    Case("gemm_stream_k", ["BM=64", "WIDE=64", "NARROW=64", "STAGES=2", "WORKERS=4", "SHARING=0"], kernel="stream_gemm__BN_64__tiles", tests=[
        f"test gemm_stream_k (M = {m}, N = 64, K = {k}) tolerance 1e-2;"
        for m, k in ((64, 64), (64, 256), (130, 328), (62, 700), (576, 64), (570, 200))]),
    Case("gemm_stream_k", ["BM=128", "WIDE=64", "NARROW=64", "STAGES=2", "WORKERS=3", "SHARING=0"], kernel="stream_gemm__BN_64__tiles", tests=[
        f"test gemm_stream_k (M = {m}, N = 64, K = {k}) tolerance 2e-2;" for m, k in ((128, 64), (384, 200), (1200, 264))],
         target="sm_90a"),
    Case("softmax", ["N=8192", "EACH=32"], ["test softmax (M = 2, N = 8192) tolerance 1e-2;"], kernel="softmax_rows__C_8192__MOST_0"),
    Case("softmax", ["N=16384", "EACH=8"], ["test softmax (M = 2, N = 16384) tolerance 1e-2;"], target="sm_90a",
         kernel="softmax_rows__C_16384__MOST_0"),
    Case("softmax", ["N=32768", "LONG=32768", "SLICE=4096"], [f"test softmax (M = {m}, N = 32768) tolerance 1e-2;" for m in (1, 9)],
         target="sm_90a", first="softmax_rows__C_32768__MOST_0"),
    Case("rmsnorm", ["N=32768", "LONG=32768", "SLICE=4096"],
         [f"test rmsnorm (M = {m}, N = 32768, eps = 1e-6) tolerance 1e-2;" for m in (1, 9)], target="sm_90a",
         first="rmsnorm_rows__C_32768__MOST_0"),
    *(Case("layer_norm", ["N=32768", "LONG=32768", f"SLICE={piece}"],
           [f"test layer_norm (M = {m}, N = 32768, eps = 1e-5) tolerance 1e-2;" for m in (1, 9)], target="sm_90a",
           first="layer_norm_rows__C_32768__MOST_0") for piece in (4096, 2048)),
    Case("cumulative_sum", ["N=32768", "LONG=16384", "SLICE=4096"],
         [f"test cumulative_sum (M = {m}, N = 32768) tolerance 1e-4;" for m in (1, 7)], target="sm_90a",
         first="cumulative_rows__C_32768"),
    Case("layer_norm_backward", ["N=200", "THREADS=128"],
         [f"test layer_norm_backward (M = {m}, N = 200) tolerance 1e-2;" for m in (3, 100)], target="sm_90a",
         first="layer_norm_backward_rows"),
    Case("softmax", ["N=1000"], ["test softmax (M = 2, N = 1000) tolerance 1e-2;"], kernel="softmax_rows__C_1000__MOST_8"),
    Case("add_rmsnorm_quantize", ["N=1024", "LIMIT=448", "Q=e4m3"], [
        f"test add_rmsnorm_quantize (M = {m}, N = 1024, LIMIT = 448, eps = 1e-6) tolerance 0.1;" for m in (1, 5)]),
    Case("cross_entropy", ["N=4096"], ["test cross_entropy (M = 3, N = 4096) { for (i in M) target[i] = i * 9; } tolerance 1e-3;"]),
    *(Case("cross_entropy", ["N=3072", "LONG=1024", f"MOST={most}"], [
        f"test cross_entropy (M = {m}, N = 3072) {{ for (i in M) target[i] = i * 9; }} tolerance 1e-3;"], target=target,
           first=f"long_loss__N_3072__MANY_{many}__STEPS_{steps}")
      for target, most, m, many, steps in (("sm_90a", 2048, 2, 2048, 2), ("sm_80", 1024, 16, 512, 2), ("sm_80", 1024, 17, 128, 4))),
    Case("cumulative_sum", ["N=4096"], ["test cumulative_sum (M = 3, N = 4096) tolerance 1e-5;"], kernel="cumulative_rows__C_4096"),
    *(Case("cumulative_sum", ["T_LONG=64", "T_LOOK_BACK=64", "N=64"], [   # a row for each multiprocessor, and fewer
        f"test cumulative_sum_long (M = {m}, N = {n}) tolerance 1e-5;" for n in (3, 1024, 10001)], kernel=kernel)
      for kernel, m in (("along_rows", 5), ("look_back", 2))),
    Case("histogram", ["B=256"], [
        f"test histogram (N = {n}, B = 256) {{ for (i in N) x[i] = i * 7 % 256; for (i in B) count[i] = 0; }} tolerance 0;" for n in (5, 10001)]),
    Case("layer_norm", ["N=4096"], ["test layer_norm (M = 3, N = 4096, eps = 1e-5) tolerance 1e-2;"], kernel="layer_norm_rows__C_4096__MOST_0"),
    Case("layer_norm_backward", ["N=300", "LONG=256"], ["test layer_norm_backward (M = 7, N = 300) tolerance 1e-2;"],
         kernel="layer_norm_backward_rows"),
    Case("sum", ["N=2000"], ["test sum_rows (M = 3, N = 2000) tolerance 1e-4;"], kernel="sum_rows"),
    Case("sum", ["N=20000", "LONG=8192"], ["test sum_rows (M = 2, N = 20000) tolerance 1e-4;"], first="sum_rows"),
    Case("sum", ["N=1", "PARTIALS=5"], ["test sum (N = 100003) tolerance 1e-3;"], kernel="partial_sums"),
    Case("sum", ["N=1", "PARTIALS=5"], ["test sum (N = 100003) tolerance 1e-3;"], kernel="sum_all"),
    *(Case("attention_paged", ["D=64", "PAGE=16"], [   # many tiles for the device's CTAs, and few
        f"test attention_paged (B = {b}, G = {g}, R = 4, P = 50, W = 40, D = 64, PAGE = 16, longest = 600, scale = 0.125) "
        "{ for (b in B) length[b] = b == 0 ? 600 : 77 * b; for (b in B, i in W) table[b, i] = (i * 7 + b * 3) % P; } tolerance 2e-2;"
        for b, g in shapes], kernel=f"decode_pieces__D_64__PAGE_16__WARPS_{warps}") for warps, shapes in ((2, ((3, 4),)), (4, ((3, 2), (1, 1))))),
    *(Case("attention_paged", ["D=128", "PAGE=16", f"BC={count}"], [
        f"test combine (B = 1, G = 1, R = 2, S = {slots}, mixes = false, D = 128, BC = {count}) "
        f"{{ for (b in B) {{ span[b, 0] = 0; span[b, 1] = {slots - 1}; }} }} tolerance 1e-2;" for slots in (2, 300)],
           kernel="combine") for count in (144, 64)),
    Case("gemm_swiglu", ["BM=64", "BN=64", "STAGES=3"], split_tests("gemm_swiglu", 64), target="sm_90a"),
    Case("gemm_swiglu", ["BM=64", "BN=64", "STAGES=3"], gemm_tests("gemm_swiglu", 64)),
    Case("gemm_w4", ["BM=16", "BN=64", "STAGES=3"], target="sm_90a", tests=[
        f"test gemm_w4 (M = 16, N = {n}, K = {k}) {{ for (n in N, b in {(k + 127) // 128 * 64}) W[n, b] = (n * 37 + b * 101) % 256; }} tolerance 2e-2;"
        for n, k in ((64, 128), (832, 128), (832, 256), (832, 896))]),
    Case("gemm_w4", ["BM=16", "BN=64", "STAGES=3"], [
        f"test gemm_w4 (M = 16, N = {n}, K = {k}) {{ for (n in N, b in {(k + 127) // 128 * 64}) W[n, b] = (n * 37 + b * 101) % 256; }} tolerance 2e-2;"
        for n, k in ((64, 0), (64, 128), (64, 256), (64, 384), (64, 896), (61, 125), (61, 890))]),
    Case("attention_lazy", ["D=64", "BM=64", "BN=64"], [
        f"test attention_lazy (B = 1, H = {h}, S = 64, T = {t}, D = 64, scale = 0.125) tolerance 2e-2;" for h, t in ((1, 64), (9, 300))],
         target="sm_90a"),
    *(Case(name, ["BM=128", "BN=64", "STAGES=2", f"BK={step}"], [
        f"test {name} (M = {m}, N = 64, K = {k}{scales}) tolerance 2e-2;" for m, k in ((128, 64), (1664, 400))], target="sm_90a", kernel=name)
      for name, step, scales in (("gemm_fp8", 128, ", scale_a = 0.5, scale_b = 0.25"), ("gemm_residual", 64, ""))),
    Case("convolution", ["BM=64", "BN=64", "STAGES=2", "R=3", "S=3", "STRIDE=1", "PAD=1", "DIL=1"], [
        f"test convolution (R = 3, S = 3, STRIDE = 1, PAD = 1, DIL = 1, B = 1, H = {h}, W = 70, C = {c}, N = 64, P = {h}, Q = 70) tolerance 1e-2;"
        for h, c in ((1, 64), (4, 8))], target="sm_90a"),
    Case("rows", [], [f"test rows (M = 50, N = {n}, K = {k}, R = {r}) {{ for (r in R) ids[r] = r * 7 % 50; }} tolerance 2e-2;"
                      for n, k, r in ((64, 64, 128), (64, 128, 128), (64, 448, 900))]
         + [f"test picked (M = {m}, N = 90, J = {j}) {{ for (j in J) ids[j] = j * 31 % 90; }} tolerance 2e-2;"
            for m, j in ((128, 60), (128, 128), (128, 500), (1100, 0), (1100, 60), (1100, 200))],
         target="sm_90a", source="lit/passes/gathers-in-roles.tile", held=(("mbarrier_wait(Qs_full[", "t / 32 == 1 && J == 0"),)),
    Case("states", [], [f"test states (B = {b}, T = {t}) tolerance 3e-2;" for b, t in ((1, 64), (9, 128), (5, 400))]
         + [f"test scaled (M = {m}, N = {n}) tolerance 2e-2;" for m, n in ((128, 40), (1300, 256), (1300, 700))],
         target="sm_90a", source="lit/passes/tiles-of-consumers.tile"),
    Case("transpose", ["T=32"], [f"test transpose (M = {m}, N = {n}) tolerance 0;"
                                 for m, n in ((32, 32), (64, 96), (37, 41))]),
    Case("gemm_cooperative", [], [f"test gemm_cooperative (M = {m}, N = 128, K = {k}, STAGES = {s}) tolerance 1e-2;"
                                  for m, k, s in ((128, 64, 2), (1024, 136, 2), (640, 264, 3))],
         "programs/emulated/gemm_cooperative.tile"),
    Case("gemm_pingpong", [], [f"test gemm_pingpong (M = {m}, N = 128, K = {k}, STAGES = {s}) tolerance 1e-2;"
                               for m, k, s in ((64, 64, 2), (704, 136, 2), (320, 264, 3))],
         "programs/emulated/gemm_pingpong.tile"),
    *(Case(kernel, [], [f"test {kernel} (M = {m}, N = {n}, K = {k}) tolerance 1e-2;" for m, n, k in shapes],
           "gpu/hopper_gemm.tile")
      for kernel, shapes in (("cooperative_128x256", ((128, 256, 584), (1152, 8, 72))),
                             ("pingpong_128x128", ((128, 128, 72), (1152, 8, 328))),
                             ("pingpong_128x200", ((128, 200, 72), (1152, 8, 200))),
                             ("single_64x128", ((64, 128, 1096), (576, 8, 200))))),
    *(Case("attention_backward", [f"D={d}", f"CAUSAL={causal}"], [
        f"test attention_backward (B = 1, H = 1, S = {s}, T = {t}, D = {d}, scale = 0.1) "
        "{ for (i in S) lse[0, 0, i] = 3 + i % 3; } tolerance 2e-2;" for s, t in shapes],
           target="sm_90a", kernel="gradients", first="gradients")
      for d, causal, shapes in ((128, "false", ((20, 20), (200, 20))), (64, "false", ((300, 20),)), (128, "true", ((130, 140),)))),
    *(Case("attention_backward_ordered", ["D=256", f"CAUSAL={causal}"], [
        f"test attention_backward_ordered (B = 1, H = 1, S = {s}, T = {t}, D = 256, scale = 0.0625) "
        "{ for (i in S) lse[0, 0, i] = 3 + i % 3; } tolerance 2e-2;" for s, t in shapes],
           target="sm_90a", kernel=kernel, first=kernel)
      for kernel, causal, shapes in (("keys", "false", ((20, 20), (200, 20))), ("queries", "false", ((20, 200),)),
                                     ("queries", "true", ((130, 130),)))),
    Case("own_slots", [], [f"test own_slots (M = {m}) tolerance 0;" for m in (16, 32, 80)], target="sm_90a",
         source="programs/slot_stores.tile", kernel="own_slots", first="own_slots"),
    Case("weighted", ["BK=64"], [f"test weighted (M = {m}, N = 64, K = {k}) tolerance 1e-2;" for m, k in ((64, 64), (320, 320))],
         target="sm_90a", source="lit/passes/vectors.tile"),
    # Several tiles of a group without queries (D = 64: of two, and of a round's last tiles, too), and steps with and without a mask.
    *(Case("attention_roles", [f"D={d}", f"CAUSAL={causal}", "LONG=1"], [
        f"test attention_roles (B = 1, H = {h}, S = {s}, T = {t}, D = {d}, scale = {scale}) tolerance 2e-2;"
        for scale, shapes in ((0.3, lagging), (0.2, others)) for h, s, t in shapes],
           target="sm_90a", kernel=f"attend__D_{d}__W_{w}__BN_{columns}__tiles", held=LAGGING)
      for d, causal, w, columns, lagging, others in (
          (64, "false", 3, 128, ((9, 64, 140), (1, 2048, 40)), ((3, 300, 200),)), (64, "true", 3, 128, ((9, 200, 200),), ((5, 450, 200),)),
          (128, "true", 3, 80, ((9, 200, 130),), ((3, 450, 300),)), (256, "false", 2, 64, ((13, 20, 60),), ((5, 140, 200),)))),
    Case("attention_fp8_roles", [], [
        f"test attention_fp8_roles (B = 1, H = {h}, S = {s}, T = {t}, D = {d}, scale = 0.07, CAUSAL = {causal}, EXACT = {exact}) "
        f"{{ for (h in H) {{ q_scale[0, h] = 1; k_scale[0, h] = 0.5; v_scale[0, h] = 2; }} }} tolerance 3e-1;"
        for exact in ("false", "true") for h, s, t, d, causal in ((5, 64, 400, 128, "false"), (9, 64, 100, 64, "true"), (5, 20, 200, 256, "false"), (9, 100, 100, 256, "true"))],
         "../examples/attention_fp8_roles.tile", held=(("highest(s, ", "wg == 1"), *PASSED_BY)),
    Case("column_sums", [], [f"test column_sums (M = {m}) tolerance 1e-5;" for m in (1, 200, 700)], "gpu/hopper_clusters.tile"),
    *(Case("attention_mla", [f"{name}={value}" for name, value in (LATENT | consts).items()],
           [f"test attention_mla (B = {len(lengths)}, G = 1, R = {heads}, P = 11, W = 14, longest = {max(lengths)}, scale = 0.04, "
            + ", ".join(f"{name} = {value}" for name, value in LATENT.items()) + ") {\n"
            + "".join(f"    length[{b}] = {keys};\n" for b, keys in enumerate(lengths))
            + "    for (b in B, i in W) table[b, i] = (i * 2 + b) % P;\n} tolerance 2e-2;" for lengths in shapes],
           target="sm_90a", first="__".join([kernel] + [f"{name}_{value}" for name, value in (LATENT | merge if merge else {}).items()]))
      for kernel, merge, heads, consts, shapes in (
          ("latent_columns", {}, 16, {}, ([650, 20, 64, 150], [250, 250], MANY)),
          ("latent_rows", {"MERGE": 1}, 20, {}, ([650, 20, 64, 150], [300, 200, 300, 20], [250, 250], MANY)),
          ("latent_rows", {"MERGE": 0}, 20, {"SPLITS": 0}, ([650, 20, 64, 150], [300, 200, 300, 20], MANY)))),
]


def by_hand(path, case):
    """The file with one kernel and its reference alone (a program: whole), and the case's tests."""
    text = re.sub(r'^import "', f'import "{path.parent.resolve()}/', TEST.sub("", path.read_text()), flags=re.M)
    for pattern in () if f"program {case.example}[" in text else (KERNEL, REFERENCE):
        text = pattern.sub(lambda match: match.group(0) if match["name"] == case.example else "", text)
    return hold(text, case) + "\n".join(case.tests) + "\n"


def hold(text, case):
    for held, who in case.held:
        assert held in text, f"{case.example}: nothing is held before {held}"
        text = text.replace(held, f"if ({who}) {{ var lag: i32 = 0; for (i in 60000) lag += 1; }} {held}")
    return text


def lowered(tilec, sources, case):
    """The example's text after the last pass, with the case's tests in the place of its own."""
    if case.program:
        return by_hand(sources / "tests" / case.program, case)
    file = sources / "tests" / case.source if case.source else sources / "examples" / f"{case.example}.tile"
    command = [tilec, "opt", f"--target={case.target}", str(file)]
    for define in case.defines:
        command += ["-D", define]
    if not all("tune " in k.group(0) for k in KERNEL.finditer(file.read_text()) if any(f"test {k['name']} " in test for test in case.tests)):
        command.append("--variants=1")   # clusters, splits and copies of operands are those of tuned kernels
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    name = case.first or case.kernel
    if name and not any(match["name"] == name for match in KERNEL.finditer(done.stdout)):
        raise SystemExit(f"{' '.join(command)}: there is no kernel {name}")
    text = one_variant(done.stdout, case.first, case.variant) if case.first else done.stdout
    for match in reversed(list(KERNEL.finditer(text)) if case.left_out else []):
        if case.left_out in match.group(0).split("{")[0]:
            text = text[:match.start()] + text[match.end():]
    return hold(TEST.sub("", text), case) + "\n" + "\n".join(case.tests) + "\n"


def one_variant(text, name, number):
    variants = [match for match in KERNEL.finditer(text) if match["name"] == name]
    for match in reversed(variants[:number] + variants[number + 1:]):
        text = text[:match.start()] + text[match.end():]
    return text


def general_only(text):
    """The text without the variants that a general one follows; None where there are none."""
    kernels = list(KERNEL.finditer(text))
    general = {match["name"]: match.start() for match in kernels if "@fallback" in match["attrs"]}
    dropped = [match for match in kernels if match.start() < general.get(match["name"], 0)]
    for match in reversed(dropped):
        text = text[:match.start()] + text[match.end():]
    return text if dropped else None


def programs_among_variants(text):
    kernels = {match["name"] for match in KERNEL.finditer(text)}
    return [match for match in PROGRAM.finditer(text) if match["name"] in kernels]


def chosen_by_cost(text):
    """The variants that a launch compares, but for the last, which has no attribute."""
    variants = [match for match in KERNEL.finditer(text) if "@tile_variant" in match["attrs"]]
    return sorted(variants + programs_among_variants(text), key=lambda match: match.start())


def launches(text, programs):
    """The names of the kernels that these programs launch."""
    kernels = {match["name"] for match in KERNEL.finditer(text)}
    calls = {(program["name"], name) for program in programs for name in re.findall(r"\b(\w+)\(", program.group(0))}
    return {name for program, name in calls if name in kernels and name != program}


def keep_variant(text, variants, kept=None, own=""):
    """The text without these variants and what they alone launch, `own` in the place of the one kept."""
    gone = {match.start() for match in variants if match is not kept}
    programs = {True: [], False: []}
    for match in PROGRAM.finditer(text):
        programs[match.start() in gone].append(match)
    idle = launches(text, programs[True]) - launches(text, programs[False])
    dropped = [match for pattern in (KERNEL, REFERENCE) for match in pattern.finditer(text) if match["name"] in idle and match.start() not in gone]
    for match in sorted([*variants, *dropped], key=lambda match: -match.start()):
        text = text[:match.start()] + (own if match is kept else "") + text[match.end():]
    return text


def each_alone(text):
    """For each variant that a launch chooses by its cost (attribute, text): without the other such ones, and without a cost, so that it comes first."""
    chosen = chosen_by_cost(text)
    for kept in chosen:
        own = re.sub(r"^ +cost \([^\n]*\) \{\n", " {\n", kept.group(0), count=1, flags=re.M)
        yield SEPARATE if kept.re is PROGRAM else "@tile_variant", keep_variant(text, chosen, kept, own)


def texts(whole, case):
    """(title, text, the attributes of the kernels whose statements are deleted)"""
    last = keep_variant(whole, chosen_by_cost(whole))
    yield "", last, set()
    if case.first:
        return
    for attribute, alone in each_alone(whole):
        yield " (in parts)" if attribute == SEPARATE else " (one of several)", alone, {attribute}
        if attribute == SEPARATE and (general := general_only(alone)):
            yield " (in parts, fallback)", general, {SEPARATE, "@fallback"}
    general = general_only(last)
    if general is not None:
        yield " (fallback)", general, {"@fallback"}


def statements(text, attributes, only):
    """The synchronising statements to delete."""
    separate = launches(text, programs_among_variants(text))
    for match in SYNC.finditer(text):
        kernel = kernel_of(text, match)
        if only and not (kernel and kernel["name"] == only):
            continue
        own = set(re.findall("@fallback|@tile_variant", kernel["attrs"])) if kernel else set()
        if kernel and kernel["name"] in separate:
            own.add(SEPARATE)
        if own == attributes:
            yield match


def to_the_end(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def emulate(run, tilec, path, flags, schedules=1):
    """Under schedules of so many seeds, until one shows a failure."""
    for seed in range(1, schedules + 1):
        code, output = run([tilec, "test", f"--seed={seed}", *flags, str(path)])
        if code != 0:
            break
    return code, output


def own_tests(text, kernel):
    """The text with the tests of this kernel alone, where it has tests and no program launches it."""
    own = re.compile(rf"test {kernel.split('__')[0]}\b")   # a variant for types or consts is KERNEL__NAME_VALUE
    if PROGRAM.search(text) or not any(own.match(test.group(0)) for test in TEST.finditer(text)):
        return text
    return TEST.sub(lambda test: test.group(0) if own.match(test.group(0)) else "", text)


def kernel_of(text, match):
    """The kernel that a statement is in; None: it is in a fn."""
    return next((k for k in KERNEL.finditer(text) if k.start() < match.start() < k.end()), None)


def without(text, match):
    kernel = kernel_of(text, match)
    deleted = text[:match.start()] + "{}" + text[match.end():]
    return own_tests(deleted, kernel["name"]) if kernel else deleted


def refusing(text, kernels):
    """The text with a contract of these kernels that no launch fulfils, so that a test that launches one fails before it runs. Lines stay."""
    for kernel in sorted(kernels, key=lambda kernel: -kernel.start()):
        at = grid_of(kernel)
        text = text[:at] + "assume(sms() < 0);" + text[at:]
    return text


def grid_of(kernel):
    return kernel.start() + re.search(r"^ +(@[^\n]* )?grid \(", kernel.group(0), re.M).start()


def launched(text, kernels, emulated):
    """Those of the kernels that a test launches. A test is refused by the first one that it launches, so that a program's next kernels
    show when that one is let through."""
    found, left = [], list(kernels)
    while left:
        refused = {int(line) for line in re.findall(r":(\d+):\d+: error\[T0712\]", emulated(refusing(text, left)))}
        shown = [kernel for kernel in left if text.count("\n", 0, grid_of(kernel)) + 1 in refused]
        found += shown
        left = [kernel for kernel in left if kernel not in shown]
        if not shown or not PROGRAM.search(text):
            break
    return found


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def place(text, match):
    return f"line {line_of(text, match)}: {match.group(0)}"


def keys_of(title, target, text, match, position):
    kernel = kernel_of(text, match)
    names = [title.split()[0], title] + ([kernel["name"]] if kernel else [])
    return [(name, target, title.endswith("fallback)"), position, match.group(0)) for name in names]


def end_of_block(text, start):
    """Behind the brace that closes the one before `start`."""
    depth = 1
    for brace in re.compile("[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)


def is_idle(kernel, statement, at):
    """What the first of the kernel's clusters, which runs, leaves out: a branch for clusters that share loads or for others, and an
    arrival at the loading CTA along a name of the grid along which it has one CTA. `at`: of the statement, in the kernel's text."""
    first = re.search(r"@cluster\((\d+), (\d+)\)", kernel)
    if not first:
        return False
    alone = [extent == "1" for extent in first.groups()]
    if (alone[1] and "& last_place_1)" in statement) or (alone[0] and "& last_place)" in statement):
        return True
    for branch in re.finditer(r"if \(((?:1 < cluster_extent\(\d\)(?: \|\| )?)+)\) \{", kernel):
        shares = not all(alone[int(name)] for name in re.findall(r"cluster_extent\((\d)\)", branch[1]))
        end = end_of_block(kernel, branch.end())
        other = re.compile(r"\s*else \{").match(kernel, end)
        if branch.end() <= at < end:
            return not shares
        if other and other.end() <= at < end_of_block(kernel, other.end()):
            return shares
    return False


def excuse_of(title, target, text, match, position):
    """Why a deletion may not be noticed: a proof; NOT_SHOWN; True for a kind of statement; else nothing."""
    between = match.group(0) == "wgmma_fence();" and BETWEEN.search(text, 0, match.start())
    own = kernel_of(text, match)
    kernel = own.group(0) if own else ""
    keys = keys_of(title, target, text, match, position)
    empty = match.group(0) == "cp_async_wait(0);" and EMPTY_GROUPS.search(kernel)
    # Threads of the CTA and, behind a cluster barrier, of its peers see an mbarrier without the fence.
    fenced = match.group(0) == "fence_mbarrier_init();" and "tma_load" not in kernel and "bulk_load" not in kernel
    joined = match.group(0) == "bulk_commit();" and own and JOINED.match(text, match.end(), own.end())
    proof = next((PROOFS[key] for key in keys if key in PROOFS), None)
    kinds = between or empty or fenced or joined or arrives_alone(text, match)
    kinds = kinds or (own and is_idle(kernel, match.group(0), match.start() - own.start()))
    return proof or (NOT_SHOWN if NOT_SHOWN.intersection(keys) else bool(kinds))


def case_name(number):
    """The example and which of its cases it is: gemm_0, gemm_1, ..."""
    example = CASES[number].example
    return f"{example}_{sum(case.example == example for case in CASES[:number])}"


def sample(count, seed):
    """One case of each example, and how many of its deletions."""
    of_example = {}
    for number, case in enumerate(CASES):
        of_example.setdefault(case.example, []).append(number)
    rng = random.Random(seed)
    return {rng.choice(numbers): (rng, count) for numbers in of_example.values()}


def some(matches, rng, count):
    """`count` of the statements, of different operations as far as there are."""
    rng.shuffle(matches)
    seen, first, again = set(), [], []
    for match in matches:
        (again if match[1][1] in seen else first).append(match)
        seen.add(match[1][1])
    return sorted((first + again)[:count], key=lambda match: match[0])


def with_variants(text, output):
    """The text without the tests for which it has no variant: they would fail whatever is deleted."""
    for head in re.findall(r"^FAIL +(\w+ \(.*?\)) +no variant takes its arguments", output, re.M):
        text = re.sub(rf"^test {re.escape(head)} tolerance [^;]*;$", "", text, flags=re.M)
    return text


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tilec")
    arguments.add_argument("sources", type=pathlib.Path)
    arguments.add_argument("-j", type=int, default=2, metavar="JOBS")
    arguments.add_argument("--only", metavar="EXAMPLE")
    arguments.add_argument("--case", metavar="NAME", help="one case, as --list names it")
    arguments.add_argument("--list", action="store_true", help="name the cases, and try none")
    arguments.add_argument("--sample", type=int, metavar="COUNT",
                           help="one case of each example, and so many deletions of it, by the seed in TILEC_TEST_SEED")
    arguments.add_argument("--launches", action="store_true",
                           help="delete nothing: each case has statements to delete, in kernels that its tests launch, and each proof is of one")
    arguments.add_argument("-v", action="store_true", help="say for each deletion what the emulator reported")
    options = arguments.parse_args()
    if options.list:
        print("\n".join(map(case_name, range(len(CASES)))))
        return 0
    sampled = sample(options.sample, os.environ.get("TILEC_TEST_SEED", "1")) if options.sample else None

    problems, deletions = [], 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        folder = pathlib.Path(name)

        def attempt(number, what, text, run=to_the_end, schedules=1):
            path = folder / f"{number}-{what}.tile"
            path.write_text(text)
            case = CASES[number]
            flags = ["--passes=none", "--target=sm_90a", f"--only={case.example}"] if case.program else [f"--target={case.target}"]
            return emulate(run, options.tilec, path, flags, schedules)

        def of_launched_kernels(number, piece, title, text, deleted):
            """The deletions from kernels that a test launches."""
            kernels = {k.start(): k for k in (kernel_of(text, match) for _, match in deleted) if k}
            found = launched(text, kernels.values(), lambda refused: attempt(number, f"refusing{piece}", refused)[1])
            idle = [k for k in kernels.values() if k not in found]
            # (A variant with fewer facts has the statements of the one of its name, but for its stores: rows_anywhere.)
            full = {k["name"] for k in KERNEL.finditer(text) if "@given_facts" not in k["attrs"]}
            problems.extend(f"{title}: no test launches the kernel {k['name']} in line {line_of(text, k)}" for k in idle
                            if "@given_facts" not in k["attrs"] or k["name"] not in full)
            return [(position, match) for position, match in deleted if not any(k.start() < match.start() < k.end() for k in idle)]

        jobs, stale = [], {*PROOFS, *NOT_SHOWN}
        for number, case in enumerate(CASES):
            if options.only not in (None, case.example) or options.case not in (None, case_name(number)):
                continue
            if sampled is not None and number not in sampled:
                continue
            whole = lowered(options.tilec, options.sources, case)
            kinds = list(enumerate(texts(whole, case)))
            if sampled:
                kinds = [sampled[number][0].choice(kinds)]
            none = not sampled
            for piece, (kind, text, attributes) in kinds:
                title = f"{case.example} {' '.join(case.defines)}{kind}"
                if not options.launches:   # these are not about what passes
                    as_it_is = attempt(number, f"whole{piece}", text)
                    text, all_tests = with_variants(text, as_it_is[1]), text
                deleted = list(enumerate(statements(text, attributes, case.first or case.kernel)))
                none = none and not deleted
                for position, match in deleted:
                    stale.difference_update(keys_of(title, case.target, text, match, position))
                if sampled:
                    deleted = some(deleted, *sampled[number])
                deleted = of_launched_kernels(number, piece, title, text, deleted)
                if options.launches:
                    continue
                if deleted and not sampled:   # else the tests may be of kernels that this text does not have
                    code, output = as_it_is if text == all_tests else attempt(number, f"whole{piece}", text)
                    if code != 0:
                        problems.append(f"{title}: fails as it is (exit {code})\n{output[-1500:]}")
                for position, match in deleted:
                    excuse = excuse_of(title, case.target, text, match, position)
                    run = to_the_end if options.v else until_failure
                    job = pool.submit(attempt, number, f"{position}-{piece}", without(text, match), run, 1 if excuse else SCHEDULES)
                    jobs.append((title, text, match, position, excuse, job))
            if none:
                problems.append(f"{case.example} {' '.join(case.defines)}: there is nothing to delete")
        if not (sampled or options.only or options.case):
            problems.extend(f"a proof is of no statement: {key}" for key in sorted(stale))
        for title, text, match, position, excuse, job in jobs:
            code, output = job.result()
            deletions += 1
            if options.v:
                errors = [line for line in output.splitlines() if "error[" in line]
                print(f"{title}: {place(text, match)}: exit {code} {errors[:1]}")
            noticed = code == 1 and "FAIL" in output
            if noticed and excuse == NOT_SHOWN:
                problems.append(f"{title}: {place(text, match)} is shown now: it leaves NOT_SHOWN")
            elif noticed and isinstance(excuse, str):
                problems.append(f"{title}: {place(text, match)} is needed after all; its proof was: {excuse}")
            if not noticed and not excuse:
                problems.append(f"{title}: not noticed without {place(text, match)}, which is number {position} (exit {code})")
    print("\n".join(problems))
    print(f"{deletions} deletions, {len(problems)} problems")
    return 1 if problems or not (jobs or options.launches) else 0


if __name__ == "__main__":
    sys.exit(main())
