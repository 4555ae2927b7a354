//! TOML.

use serde_json::Number;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::{MAX_DEPTH, MAX_NODES, Node, ParsedTree, SyntaxError, TreeEntry, Value};

pub(crate) fn parse(text: &str) -> Result<Option<ParsedTree>, SyntaxError> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        SyntaxError::new(span, format!("Invalid TOML in config file: {}", error.message()))
    })?;
    if table.get_ref().is_empty() {
        return Ok(None);
    }
    let span = table.span();
    let entries = TomlTreeBuilder { n_nodes: 0 }.entries(table.get_ref(), 1)?;
    Ok(Some(ParsedTree { root: Node::new(span, Value::Map(entries)), duplicates: Vec::new() }))
}

struct TomlTreeBuilder {
    n_nodes: usize,
}

impl TomlTreeBuilder {
    fn node(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Node, SyntaxError> {
        let span = value.span();
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return Err(SyntaxError::too_many(span));
        }
        if depth > MAX_DEPTH {
            return Err(SyntaxError::too_deep(span));
        }
        let too_large = || SyntaxError::new(span.clone(), "this number is out of range");
        let made = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => Value::Number(integer(number).ok_or_else(too_large)?),
            DeValue::Float(number) => {
                Value::Number(number.as_str().parse().ok().and_then(Number::from_f64).ok_or_else(too_large)?)
            }
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.node(item, depth + 1)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Map(self.entries(table, depth + 1)?),
        };
        Ok(Node::new(span, made))
    }

    fn entries(&mut self, table: &DeTable<'_>, depth: usize) -> Result<Vec<TreeEntry>, SyntaxError> {
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let value = self.node(value, depth)?;
            Ok(TreeEntry {
                key: String::from(AsRef::<str>::as_ref(key.get_ref())),
                key_span: key.span().into(),
                value,
            })
        };
        table.iter().map(entry).collect()
    }
}

fn integer(number: &DeInteger<'_>) -> Option<Number> {
    i64::from_str_radix(number.as_str(), number.radix()).ok().map(Number::from)
}
