// static/modes/tile-mode.ts of Compiler Explorer: colors of the tile language.

import * as monaco from 'monaco-editor';

function definition(): monaco.languages.IMonarchLanguage {
    return {
        keywords: [
            'kernel', 'program', 'fn', 'macro', 'import', 'const', 'reference', 'test', 'tolerance', 'tune',
            'assume', 'when', 'cost', 'scratch', 'grid', 'threads', 'cluster', 'persistent', 'raster', 'regs',
            'role', 'async', 'thread', 'shared', 'fragment', 'local', 'var', 'let', 'layout', 'strides', 'for',
            'unroll', 'vectorized', 'parallel', 'pipelined', 'while', 'if', 'else', 'break', 'return', 'in', 'out',
            'inout', 'step', 'channel', 'slots', 'readers', 'produce', 'consume', 'ordered',
        ],
        types: [
            'bool', 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64', 'f16', 'bf16', 'f32', 'f64', 'e4m3',
            'e5m2', 'mbarrier', 'channel', 'slot', 'tensormap',
        ],
        tokenizer: {
            root: [
                [/\/\/.*$/, 'comment'],
                [/"(?:[^"\\]|\\.)*"/, 'string'],
                [/@\w+/, 'annotation'],
                [/0[xX][0-9a-fA-F.]+([pP][+-]?[0-9]+)?|[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/, 'number'],
                [/[A-Za-z_]\w*/, {cases: {'@types': 'type', '@keywords': 'keyword', '@default': 'identifier'}}],
                [/[{}()[\]]/, '@brackets'],
            ],
        },
    };
}

function configuration(): monaco.languages.LanguageConfiguration {
    return {
        comments: {lineComment: '//'},
        brackets: [
            ['{', '}'],
            ['[', ']'],
            ['(', ')'],
        ],
    };
}

monaco.languages.register({id: 'tile'});
monaco.languages.setMonarchTokensProvider('tile', definition());
monaco.languages.setLanguageConfiguration('tile', configuration());
