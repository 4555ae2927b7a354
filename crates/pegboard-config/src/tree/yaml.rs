//! YAML, with anchors, aliases and merge keys.

use pegboard_yaml::{RepeatedKey, YamlError, YamlErrorKind, YamlLimits, YamlNode, YamlValue};

use super::{DuplicateKey, MAX_DEPTH, MAX_NODES, Node, ParsedTree, SyntaxError, TreeEntry, Value};

pub(crate) fn parse(text: &str) -> Result<Option<ParsedTree>, SyntaxError> {
    let limits = YamlLimits { max_depth: MAX_DEPTH, max_nodes: MAX_NODES };
    let document = pegboard_yaml::parse(text, limits).map_err(|error| syntax_error(&error, text))?;
    let duplicate =
        |RepeatedKey { key, span, first }| DuplicateKey { key, span: span.into(), first: first.into() };
    let duplicates = document.repeated_keys.into_iter().map(duplicate).collect();
    let root = document.root.filter(|root| root.value != YamlValue::Null);
    Ok(root.map(|root| ParsedTree { root: root.into(), duplicates }))
}

impl From<YamlNode> for Node {
    fn from(node: YamlNode) -> Self {
        Self::new(node.span, node.value.into())
    }
}

impl From<YamlValue> for Value {
    fn from(value: YamlValue) -> Self {
        match value {
            YamlValue::Null => Self::Null,
            YamlValue::Bool(value) => Self::Bool(value),
            YamlValue::Number(number) => Self::Number(number),
            YamlValue::Text(text) => Self::Text(text),
            YamlValue::List(items) => Self::List(items.into_iter().map(Node::from).collect()),
            YamlValue::Map(entries) => {
                let entries = entries.into_iter().map(|(key, entry)| TreeEntry {
                    key,
                    key_span: entry.key_span.into(),
                    value: entry.value.into(),
                });
                Self::Map(entries.collect())
            }
        }
    }
}

fn syntax_error(error: &YamlError, text: &str) -> SyntaxError {
    let YamlErrorKind::Syntax(info) = &error.kind else {
        return SyntaxError::new(error.span.clone(), error.to_string());
    };
    let (before, after) = text.split_at(error.span.start);
    let uses_tab =
        before.rsplit('\n').next().is_some_and(|line| line.contains('\t')) || after.starts_with('\t');
    SyntaxError {
        span: error.span.clone().into(),
        message: format!("Invalid YAML in config file: {info}"),
        help: uses_tab.then(|| "indent with spaces, not tabs".to_owned()),
    }
}
