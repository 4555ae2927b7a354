//! JSON with comments and trailing commas.

use jsonc_parser::ast::{ObjectProp, ObjectPropName, Value as Ast};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{
    DuplicateKey, EntryMap, MAX_DEPTH, MAX_NODES, Node, ParsedTree, Span, SyntaxError, TreeEntry, Value,
};

pub(crate) fn parse(text: &str) -> Result<Option<ParsedTree>, SyntaxError> {
    // Checked first, since the parser's recursion could overflow a small stack.
    if let Some(at) = too_deep(text) {
        return Err(SyntaxError::too_deep(at..at + 1));
    }
    let parsed =
        parse_to_ast(text, &CollectOptions::default(), &options()).map_err(|error| syntax(&error))?;
    let Some(ast) = parsed.value else { return Ok(None) };
    let mut builder = JsonTreeBuilder { n_nodes: 0, duplicates: Vec::new() };
    let root = builder.node(&ast)?;
    Ok(Some(ParsedTree { root, duplicates: builder.duplicates }))
}

/// Accepts comments and trailing commas, and no other extensions.
fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Returns the offset of the first bracket that exceeds the maximum depth. Strings and comments are skipped.
fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = text[at + 2..].find("*/").map_or(bytes.len(), |end| at + 2 + end + 1);
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Some(at);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

struct JsonTreeBuilder {
    n_nodes: usize,
    duplicates: Vec<DuplicateKey>,
}

impl JsonTreeBuilder {
    fn node(&mut self, ast: &Ast<'_>) -> Result<Node, SyntaxError> {
        let span = span(ast.range());
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return Err(SyntaxError::too_many(span));
        }
        let value = match ast {
            Ast::NullKeyword(_) => Value::Null,
            Ast::BooleanLit(literal) => Value::Bool(literal.value),
            Ast::StringLit(literal) => Value::Text(literal.value.to_string()),
            Ast::NumberLit(literal) => Value::Number(
                serde_json::from_str(literal.value)
                    .map_err(|_| SyntaxError::new(span, "this number is too large"))?,
            ),
            Ast::Array(array) => {
                Value::List(array.elements.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?)
            }
            Ast::Object(object) => {
                let mut entries = EntryMap::default();
                for property in &object.properties {
                    let entry = self.entry(property)?;
                    self.duplicates.extend(entries.add(entry));
                }
                Value::Map(entries.entries)
            }
        };
        Ok(Node::new(span, value))
    }

    fn entry(&mut self, property: &ObjectProp<'_>) -> Result<TreeEntry, SyntaxError> {
        let (key, key_span) = match &property.name {
            ObjectPropName::String(literal) => (literal.value.to_string(), span(literal.range)),
            ObjectPropName::Word(literal) => (literal.value.to_owned(), span(literal.range)),
        };
        Ok(TreeEntry { key, key_span, value: self.node(&property.value)? })
    }
}

fn span(range: Range) -> Span {
    Span::new(range.start, range.end)
}

fn syntax(error: &ParseError) -> SyntaxError {
    let help = match error.kind() {
        ParseErrorKind::ExpectedComma => Some("add a comma before this"),
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedWord => {
            Some("put it in double quotes")
        }
        ParseErrorKind::SingleQuotedStringsNotAllowed => Some("use double quotes"),
        ParseErrorKind::UnterminatedObject => Some("close it with }"),
        ParseErrorKind::UnterminatedArray => Some("close it with ]"),
        _ => None,
    };
    SyntaxError {
        span: span(error.range()),
        message: format!("Invalid JSON in config file: {}", error.kind()),
        help: help.map(str::to_owned),
    }
}
