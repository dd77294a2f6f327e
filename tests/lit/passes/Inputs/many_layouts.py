"""A kernel whose N fragments are between two layouts, and all meet: many_layouts.py N"""
import sys

n = int(sys.argv[1])
ROWS, COLUMNS = "((4,16),4):((4@1,1@0),1@1)", "((16,4),4):((1@0,4@1),1@1)"
print(f"kernel many(x: f32[2, 16, 16], s: i32[{n}], y: out f32[{n}, 16, 16]) {{ grid (b in 1) threads 64 {{")
for i, layout in enumerate((ROWS, COLUMNS)):
    print(f'fragment a{i}: f32[16, 16] layout "{layout}"; copy(x[{i}, :, :], a{i});')
for f in range(n):
    print(f"fragment f{f}: f32[16, 16]; parallel (i in 16, j in 16) f{f}[i, j] = a{f % 2}[i, j] * {f};")
for f in range(n):
    print(f"if (s[{f}] > 0) {{ parallel (i in 16, j in 16) f{f}[i, j] = f{f}[i, j] + a{(f + 1) % 2}[i, j]; }}")
    print(f"else {{ parallel (i in 16, j in 16) f{f}[i, j] = f{(f + 1) % n}[i, j] * 2; }}")
for f in range(n):
    print(f"copy(f{f}, y[{f}, :, :]);")
print("} }")
