// The tile language for tree-sitter: editors color, fold and select by it. It takes what frontend/lang.y takes (a test compares the two), with
// the same precedences. Words such as `out` or `step` are keywords only where the grammar expects them, so they are listed in `name` too.
//
// Generate src/parser.c with `./dev grammar` after a change.

const NAMES = [
  'out', 'inout', 'step', 'test', 'layout', 'reference', 'tolerance', 'raster', 'cluster', 'persistent', 'strides', 'regs', 'when', 'scratch',
  'role', 'async', 'threads', 'kernel', 'program', 'macro', 'tune', 'import', 'fn', 'channel', 'slots', 'readers', 'produce', 'consume', 'ordered', 'cost',
];

// Loosest first, all to the left but the ternary.
const BINARY = [['||'], ['&&'], ['|'], ['^'], ['&'], ['==', '!='], ['<', '>', '<=', '>='], ['<<', '>>'], ['+', '-'], ['*', '/', '%']];
const TERNARY = 1, BINARIES = 2, UNARY = BINARIES + BINARY.length;

const list = rule => seq(rule, repeat(seq(',', rule)));
const ASSIGNMENTS = ['=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='];

module.exports = grammar({
  name: 'tile',
  word: $ => $.identifier,
  extras: $ => [/[ \t\r\n]/, $.comment],
  supertypes: $ => [$._item, $._statement, $._expression],
  inline: $ => [$._place, $._name],

  rules: {
    file: $ => repeat(seq(repeat($.attribute), $._item)),

    // ---- items ----
    _item: $ => choice($.kernel, $.program, $.function, $.macro, $.import, $.constant, $.reference, $.test),
    kernel: $ => seq('kernel', $._launched),
    program: $ => seq('program', $._launched),
    _launched: $ => seq(
      field('name', $._name), optional($.compile_time_names), field('parameters', $.parameters), optional($.condition), optional($.cost),
      field('body', $.block)),
    function: $ => seq('fn', field('name', $._name), field('parameters', $.parameters), '->', field('result', $.type), field('body', $.block)),
    macro: $ => seq('macro', field('name', $._name), field('parameters', $.parameters), field('body', $.block)),
    import: $ => seq('import', field('path', $.string), ';'),
    constant: $ => seq('const', field('name', $._name), '=', field('value', $._expression), ';'),
    reference: $ => seq('reference', field('name', $._name), field('body', $.block)),
    test: $ => seq(
      'test', field('name', $._name), '(', optional(list($.binding)), ')', optional(field('fill', $.block)),
      'tolerance', field('tolerance', $._expression), ';'),

    compile_time_names: $ => seq('[', list(seq(field('name', $._name), optional(seq(':', $.type, optional(seq('in', '{', list($.type), '}')))))), ']'),
    condition: $ => seq('when', '(', $._expression, ')'),
    cost: $ => seq('cost', '(', list($._argument), ')'),
    parameters: $ => seq('(', optional(list($.parameter)), ')'),
    parameter: $ => seq(
      field('name', $._name), ':', optional(choice('out', 'inout', 'shared', 'fragment', 'local')), field('type', $.type),
      optional(choice($.dims, $.leading_dims, $.coordinates)), optional($.strides), optional(seq('layout', $.dims)), repeat($.attribute)),
    dims: $ => seq('[', list($._expression), ']'),
    leading_dims: $ => seq('[', '..', list($._expression), ']'),
    coordinates: $ => seq('[', list($.coordinate), ']'),
    coordinate: $ => seq(field('name', $._name), 'in', field('extent', $._expression)),
    strides: $ => seq('strides', $.dims),

    // ---- statements ----
    block: $ => seq('{', repeat($._attributed), '}'),
    _attributed: $ => seq(repeat($.attribute), $._statement),
    _statement: $ => choice(
      $.block, $.constant, $.tune, $.assume, $.declaration, $.grid, $.var, $.let, $.loop, $.while, $.if, $.break, $.return, $.role,
      $.channel, $.slot_block, $.thread, $.async, $.assignment, $.call_statement),
    tune: $ => seq('tune', list($.tunable), ';'),
    tunable: $ => seq(field('name', $._name), 'in', '{', list($._expression), '}'),
    assume: $ => seq('assume', '(', $._expression, ')', ';'),
    declaration: $ => seq(choice('shared', 'fragment', 'local', 'scratch'), list($.declarator), ';'),
    declarator: $ => seq(
      field('name', $._name), ':', field('type', $.type), optional($.dims), optional(seq('layout', choice($.string, $.call))), repeat($.attribute)),
    grid: $ => seq(
      'grid', $.iterators, 'threads', field('threads', $._expression),
      repeat(choice($.cluster, 'persistent', $.raster)), field('body', $.block)),
    cluster: $ => seq('cluster', '(', list($._expression), ')'),
    raster: $ => seq('raster', $._expression),
    var: $ => seq('var', field('name', $._name), ':', field('type', $.type), optional(seq('=', field('value', $._expression))), ';'),
    let: $ => seq('let', field('name', $._name), '=', field('value', $._expression), ';'),
    loop: $ => seq(
      choice('for', 'unroll', 'vectorized', 'parallel', 'pipelined'), '(', list(choice($.iterator, $.binding)), ')', field('body', $._attributed)),
    while: $ => seq('while', '(', field('condition', $._expression), ')', field('body', $._attributed)),
    if: $ => prec.right(seq(
      'if', '(', field('condition', $._expression), ')', field('then', $._attributed), optional(seq('else', field('else', $._attributed))))),
    break: $ => seq('break', ';'),
    return: $ => seq('return', $._expression, ';'),
    role: $ => seq(
      'role', field('name', $._name), optional(seq('[', $.coordinate, ']')), 'threads', field('threads', $._expression),
      optional(seq('regs', field('registers', $._expression))), field('body', $.block)),
    channel: $ => seq(
      'channel', field('name', $._name), optional(choice(seq(':', field('type', $.type), optional($.dims)), seq('(', list($.declarator), ')'))),
      repeat(choice(seq('slots', $._expression), seq('readers', $._expression), $.attribute)), ';'),
    slot_block: $ => seq(choice('produce', 'consume', 'ordered'), field('channel', $._name), field('body', $.block)),
    thread: $ => seq('thread', $.iterators, field('body', $.block)),
    async: $ => seq('async', $.call, ';'),
    assignment: $ => seq(field('place', $._place), choice(...ASSIGNMENTS), field('value', $._expression), ';'),
    call_statement: $ => seq($.call, ';'),

    iterators: $ => seq('(', list($.iterator), ')'),
    iterator: $ => seq(
      field('name', $._name), 'in', $._expression, optional(seq('..', $._expression)), optional(seq('step', $._expression))),

    // ---- expressions ----
    _expression: $ => choice(
      $.name, $.element, $.member, $.call, $.integer, $.float, $.parenthesized, $.unary, $.binary, $.ternary),
    _place: $ => choice($.name, $.element, $.member),
    name: $ => $._name,
    element: $ => seq(field('of', choice($._place, $.call)), '[', list($._index), ']'),
    member: $ => seq(field('of', choice($._place, $.call)), '.', field('member', $._name)),
    _index: $ => choice($._expression, $.all, $.span),
    all: $ => ':',
    span: $ => seq($._expression, '+:', $._expression, optional(seq('step', $._expression))),
    call: $ => seq(field('function', $._name), '(', optional(list($._argument)), ')'),
    _argument: $ => choice($._expression, $.binding, $.string),
    binding: $ => seq(field('name', $._name), '=', field('value', $._expression)),
    parenthesized: $ => seq('(', $._expression, ')'),
    unary: $ => prec(UNARY, seq(choice('-', '!', '~'), $._expression)),
    binary: $ => choice(...BINARY.flatMap((operators, level) =>
      operators.map(operator => prec.left(BINARIES + level, seq($._expression, operator, $._expression))))),
    ternary: $ => prec.right(TERNARY, seq($._expression, '?', $._expression, ':', $._expression)),

    // ---- words ----
    attribute: $ => seq('@', field('name', $._name), optional(seq('(', optional(list($._argument)), ')'))),
    type: $ => choice($.identifier, 'channel'),
    _name: $ => choice($.identifier, ...NAMES.map(word => alias(word, $.identifier))),
    identifier: $ => /[A-Za-z_][A-Za-z_0-9]*/,
    integer: $ => token(choice(/[0-9]+/, /0[xX][0-9a-fA-F]+/)),
    // The point of `1.` stands by itself: in `1..n` it begins the dots of a range.
    float: $ => choice(
      token(choice(
        /[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?/, /[0-9]+\.?[eE][+-]?[0-9]+/, /\.[0-9]+([eE][+-]?[0-9]+)?/,
        /0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+/)),
      seq($.integer, token.immediate('.'))),
    string: $ => /"([^"\\\n]|\\.)*"/,
    comment: $ => /\/\/[^\n]*/,
  },
});
