// lib/compilers/tilec.ts of Compiler Explorer: PTX as assembly; the program after all passes, its layouts and the LLVM IR as device views.

import * as fs from 'node:fs/promises';
import path from 'node:path';

import type {CompilationInfo, CompilationResult} from '../../types/compilation/compilation.interfaces.js';
import type {PreliminaryCompilerInfo} from '../../types/compiler.interfaces.js';
import type {ParseFiltersAndOutputOptions} from '../../types/features/filters.interfaces.js';
import {BaseCompiler} from '../base-compiler.js';
import {CompilationEnvironment} from '../compilation-env.js';
import {PTXAsmParser} from '../parsers/asm-parser-ptx.js';
import {BaseParser} from './argument-parsers.js';

export class TilecCompiler extends BaseCompiler {
    static get key() {
        return 'tilec';
    }

    constructor(info: PreliminaryCompilerInfo, env: CompilationEnvironment) {
        super(info, env);
        this.asm = new PTXAsmParser(this.compilerProps);
        this.compiler.supportsDeviceAsmView = true;
    }

    // Without a tuning record, a reproducer or colors: the same source and options give the same bytes, and nothing else is written.
    override optionsForFilter(filters: ParseFiltersAndOutputOptions, outputFilename: string) {
        filters.binary = false;
        return ['build', '--emit=ptx,tile,layouts,llvm', '--record=none', '--repro-dir=none', '--color=never', '-o', outputFilename];
    }

    override getOutputFilename(dirPath: string, outputFilebase: string) {
        return path.join(dirPath, `${outputFilebase}.ptx`);
    }

    override getCompilerResultLanguageId(_filters?: ParseFiltersAndOutputOptions) {
        return 'ptx';
    }

    override getArgumentParserClass() {
        return BaseParser;
    }

    override async extractDeviceCode(result: CompilationResult, filters: ParseFiltersAndOutputOptions, info: CompilationInfo) {
        const base = info.outputFilename.replace(/\.ptx$/, '');
        const devices: Record<string, any> = {...result.devices};
        for (const view of ['tile', 'layouts.txt', 'll']) {
            const text = await fs.readFile(`${base}.${view}`, 'utf8').catch(() => undefined);
            if (text === undefined) continue;
            devices[view] = view === 'll' ? await this.llvmIr.processFromFilters(text, filters) : {asm: text.split('\n').map(line => ({text: line}))};
        }
        return {...result, devices};
    }
}
