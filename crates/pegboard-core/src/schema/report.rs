//! Violations as messages, in the order of the schema.
//!
//! The order is that of a walk through the schema: at each location the type, then the value's own limits,
//! then its parts, required ones first. If the type is wrong, nothing else is reported for that location.

use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::LocationSegment;
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::budget::SchemaBudget;
use super::literal::{LiteralStyle, literal, literal_list, shortened};
use crate::validation::Violation;

/// Maximum number of violations reported for one value.
pub(super) const MAX_VIOLATIONS: usize = 1_000;
/// Maximum size of all violations reported for one value.
const MAX_REPORT_BYTES: usize = 256 << 10;
/// Maximum length of a name in a path, and of a pattern or format.
const MAX_NAME_CHARS: usize = 500;

/// Order of keywords at one location.
const KEYWORD_ORDER: &[&str] = &[
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "type",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "prefixItems",
    "items",
    "additionalItems",
    "contains",
    "required",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "properties",
    "patternProperties",
    "additionalProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "allOf",
    "anyOf",
];

/// Converts the errors of the validator into violations.
pub(super) fn violations<'a>(
    errors: impl Iterator<Item = ValidationError<'a>>,
    data: &Value,
    schema: &Value,
    budget: &SchemaBudget,
) -> Vec<Violation> {
    let mut ranked: Vec<RankedError<'_, '_>> =
        errors.take(MAX_VIOLATIONS + 1).map(|error| RankedError::of(error, data, schema, budget)).collect();
    let mut is_cut = ranked.len() > MAX_VIOLATIONS;
    drop_errors_implied_by_type(&mut ranked);
    // Stable sort: errors of equal rank keep the validator's order.
    ranked.sort_by(|a, b| a.rank.cmp(&b.rank));
    let (mut found, mut n_bytes) = (Vec::new(), 0);
    for violation in ranked.iter().flat_map(RankedError::violations).take(MAX_VIOLATIONS + 1) {
        n_bytes += violation.text().len();
        if n_bytes > MAX_REPORT_BYTES {
            is_cut = true;
            break;
        }
        found.push(violation);
    }
    capped(found, is_cut)
}

/// Truncates a list of violations, with a final entry that says so.
pub(super) fn capped(mut found: Vec<Violation>, is_cut: bool) -> Vec<Violation> {
    if is_cut || found.len() > MAX_VIOLATIONS {
        found.truncate(MAX_VIOLATIONS);
        let n_listed = found.len();
        found.push(Violation::plain(format!("$: only the first {n_listed} violations are listed")));
    }
    found
}

/// An error of the validator with its rank in the walk.
struct RankedError<'a, 's> {
    error: ValidationError<'a>,
    /// Value of the violated keyword.
    rule: Option<&'s Value>,
    /// Offending part of the value.
    data: Option<&'s Value>,
    path: ValuePath,
    rank: Vec<usize>,
}

/// Path in the value: in full, and with names that only the value contains masked.
struct ValuePath {
    full: String,
    masked: String,
}

fn drop_errors_implied_by_type(ranked: &mut Vec<RankedError<'_, '_>>) {
    let parent = |location: &str| location.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let mistyped: Vec<(String, String)> = ranked
        .iter()
        .filter(|ranked_error| matches!(ranked_error.error.kind(), ValidationErrorKind::Type { .. }))
        .map(|ranked_error| {
            let path = ranked_error.error.instance_path().as_str().to_owned();
            (parent(ranked_error.error.evaluation_path().as_str()), path)
        })
        .collect();
    if mistyped.is_empty() {
        return;
    }
    ranked.retain(|ranked_error| {
        let keyword = ranked_error.error.evaluation_path().as_str();
        let is_explained_by = |(node, path): &(String, String)| {
            let below = keyword.strip_prefix(node.as_str());
            let inside = ranked_error.error.instance_path().as_str().strip_prefix(path.as_str());
            below.is_some_and(|rest| rest.starts_with('/') && rest != "/type")
                && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !mistyped.iter().any(is_explained_by)
    });
}

impl<'a, 's> RankedError<'a, 's> {
    fn of(error: ValidationError<'a>, data: &'s Value, schema: &'s Value, budget: &'s SchemaBudget) -> Self {
        let mut walk = SchemaWalk {
            root: schema,
            budget,
            node: Some(schema),
            data: Some(data),
            rank: Vec::new(),
            path: ValuePath::root(),
        };
        walk.follow(&error);
        Self { rule: walk.node, data: walk.data, path: walk.path, rank: walk.rank, error }
    }

    fn violations(&self) -> Vec<Violation> {
        let value = self.error.instance();
        match self.error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = shortened(property.as_str().unwrap_or_default(), MAX_NAME_CHARS);
                vec![self.violation_at(&format!(".{name}"), &format!(".{name}"), "required field missing")]
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                self.additional_properties(unexpected.iter())
            }
            // A schema that closes an object and declares no properties.
            ValidationErrorKind::FalseSchema if self.closes_an_object() => {
                let members = self.data.and_then(Value::as_object);
                self.additional_properties(members.into_iter().flat_map(serde_json::Map::keys))
            }
            ValidationErrorKind::PropertyNames { error } => {
                let problem = problem(error.kind(), error.instance());
                let name = literal(error.instance(), LiteralStyle::Json);
                vec![Violation::new(
                    format!("{}: property name {name} is not allowed: {problem}", self.path.full),
                    format!("{}: a property name is not allowed: {problem}", self.path.masked),
                )]
            }
            ValidationErrorKind::Enum { options } => {
                let options = literal_list(options.as_array().map_or(&[], Vec::as_slice), LiteralStyle::Json);
                vec![self.violation_quoting(value, &format!("not in enum {options}"))]
            }
            ValidationErrorKind::Minimum { limit } => {
                vec![self.violation_quoting(value, &format!("< minimum {limit}"))]
            }
            ValidationErrorKind::Maximum { limit } => {
                vec![self.violation_quoting(value, &format!("> maximum {limit}"))]
            }
            ValidationErrorKind::ExclusiveMinimum { limit } => {
                vec![self.violation_quoting(value, &format!("<= exclusiveMinimum {limit}"))]
            }
            ValidationErrorKind::ExclusiveMaximum { limit } => {
                vec![self.violation_quoting(value, &format!(">= exclusiveMaximum {limit}"))]
            }
            ValidationErrorKind::MultipleOf { multiple_of } => {
                vec![self.violation_quoting(value, &format!("is not a multiple of {multiple_of}"))]
            }
            // The validator keeps a list of types as a set; the schema has the author's order.
            ValidationErrorKind::Type { .. } if self.rule.is_some_and(Value::is_array) => {
                let types = literal_list(
                    self.rule.and_then(Value::as_array).map_or(&[], Vec::as_slice),
                    LiteralStyle::Json,
                );
                vec![self.violation_at("", "", &format!("expected type {types}, got {}", json_type(value)))]
            }
            kind => vec![self.violation_at("", "", &problem(kind, value))],
        }
    }

    /// Returns a violation for each of these properties, sorted by name.
    fn additional_properties<'n>(&self, names: impl Iterator<Item = &'n String>) -> Vec<Violation> {
        let mut names: Vec<&String> = names.collect();
        names.sort();
        names
            .iter()
            .take(MAX_VIOLATIONS + 1)
            .map(|name| shortened(name, MAX_NAME_CHARS))
            .map(|name| self.violation_at(&format!(".{name}"), ".*", "additional property not allowed"))
            .collect()
    }

    fn closes_an_object(&self) -> bool {
        let keyword = self.error.evaluation_path().as_str();
        self.data.is_some_and(Value::is_object) && keyword.ends_with("/additionalProperties")
    }

    fn violation_at(&self, part: &str, masked_part: &str, problem: &str) -> Violation {
        Violation::new(
            format!("{}{part}: {problem}", self.path.full),
            format!("{}{masked_part}: {problem}", self.path.masked),
        )
    }

    fn violation_quoting(&self, value: &Value, problem: &str) -> Violation {
        Violation::new(
            format!("{}: value {} {problem}", self.path.full, literal(value, LiteralStyle::Json)),
            format!("{}: value {problem}", self.path.masked),
        )
    }
}

/// Describes a violation without quoting the value.
fn problem(kind: &ValidationErrorKind, value: &Value) -> String {
    use ValidationErrorKind as Kind;
    let n_chars = || value.as_str().map_or(0, |text| text.chars().count());
    let n_items = || value.as_array().map_or(0, Vec::len);
    let n_properties = || value.as_object().map_or(0, serde_json::Map::len);
    let short = |text| shortened(text, MAX_NAME_CHARS);
    match kind {
        Kind::Type { kind } => format!("expected type {}, got {}", type_names(kind), json_type(value)),
        Kind::MinLength { limit } => format!("string length {} < minLength {limit}", n_chars()),
        Kind::MaxLength { limit } => format!("string length {} > maxLength {limit}", n_chars()),
        Kind::MinItems { limit } => format!("array length {} < minItems {limit}", n_items()),
        Kind::MaxItems { limit } => format!("array length {} > maxItems {limit}", n_items()),
        Kind::MinProperties { limit } => format!("property count {} < minProperties {limit}", n_properties()),
        Kind::MaxProperties { limit } => format!("property count {} > maxProperties {limit}", n_properties()),
        Kind::AdditionalItems { limit } => format!("array length {} > {limit}", n_items()),
        Kind::UnevaluatedItems { .. } => "additional item not allowed".to_owned(),
        Kind::UniqueItems => "array items are not unique".to_owned(),
        Kind::Contains => "no array item matches contains".to_owned(),
        Kind::Constant { expected_value } => {
            format!("expected the constant {}", literal(expected_value, LiteralStyle::Json))
        }
        Kind::Pattern { pattern } => format!("string does not match pattern '{}'", short(pattern)),
        Kind::Format { format } => format!("string is not a valid {}", short(format)),
        Kind::ContentEncoding { content_encoding: name }
        | Kind::ContentMediaType { content_media_type: name } => {
            format!("string is not valid {}", short(name))
        }
        Kind::FalseSchema => "no value is allowed here".to_owned(),
        Kind::Not { .. } => "value matches a schema that is not allowed".to_owned(),
        Kind::AnyOf { context } => format!("value matches none of the anyOf schemas{}", reasons(context)),
        Kind::OneOfNotValid { context } => {
            format!("value matches none of the oneOf schemas{}", reasons(context))
        }
        Kind::OneOfMultipleValid { .. } => "value matches more than one of the oneOf schemas".to_owned(),
        Kind::PropertyNames { .. } => "a property name is not allowed".to_owned(),
        Kind::Enum { options } => {
            let options = literal_list(options.as_array().map_or(&[], Vec::as_slice), LiteralStyle::Json);
            format!("value not in enum {options}")
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "the pattern could not be matched".to_owned()
        }
        Kind::Custom { keyword, .. } => format!("value violates '{keyword}'"),
        Kind::FromUtf8 { .. } => "string does not decode to text".to_owned(),
        Kind::Referencing(_) => "the schema has an unresolvable reference".to_owned(),
        Kind::Required { .. }
        | Kind::AdditionalProperties { .. }
        | Kind::UnevaluatedProperties { .. }
        | Kind::Minimum { .. }
        | Kind::Maximum { .. }
        | Kind::ExclusiveMinimum { .. }
        | Kind::ExclusiveMaximum { .. }
        | Kind::MultipleOf { .. } => "value does not match its schema".to_owned(),
    }
}

/// Lists why each branch failed, without quoting the value.
fn reasons(branches: &[Vec<ValidationError<'static>>]) -> String {
    const MAX_BRANCHES: usize = 5;
    let mut text = String::new();
    for (index, first) in branches.iter().filter_map(|branch| branch.first()).take(MAX_BRANCHES).enumerate() {
        text.push_str(if index == 0 { " (" } else { " | " });
        match first.kind() {
            ValidationErrorKind::Required { property } => {
                let name = shortened(property.as_str().unwrap_or_default(), MAX_NAME_CHARS);
                let _ = write!(text, "{name}: required field missing");
            }
            // One level of reasons; more would grow with every level of the value.
            ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
                text.push_str("value matches none of several schemas");
            }
            kind => text.push_str(&problem(kind, first.instance())),
        }
    }
    if !text.is_empty() {
        text.push(')');
    }
    text
}

impl ValuePath {
    fn root() -> Self {
        Self { full: "$".to_owned(), masked: "$".to_owned() }
    }

    fn enter(&mut self, segment: &LocationSegment<'_>, is_declared: bool) {
        let name = match segment {
            LocationSegment::Property(name) => format!(".{}", shortened(name, MAX_NAME_CHARS)),
            LocationSegment::Index(index) => format!("[{index}]"),
        };
        let hidden = matches!(segment, LocationSegment::Property(_)) && !is_declared;
        self.masked.push_str(if hidden { ".*" } else { &name });
        self.full.push_str(&name);
    }
}

/// Walk down the schema along one error, in step with the value.
struct SchemaWalk<'s> {
    root: &'s Value,
    budget: &'s SchemaBudget,
    /// Current part of the value.
    data: Option<&'s Value>,
    /// `None` once the walk has left the supported keywords.
    node: Option<&'s Value>,
    rank: Vec<usize>,
    path: ValuePath,
}

impl SchemaWalk<'_> {
    fn follow(&mut self, error: &ValidationError<'_>) {
        let mut parts = error.instance_path().segments();
        let mut steps = error.evaluation_path().segments();
        while let Some(LocationSegment::Property(keyword)) = steps.next() {
            let order =
                KEYWORD_ORDER.iter().position(|known| *known == keyword).unwrap_or(KEYWORD_ORDER.len());
            let value = self.node.and_then(|node| node.get(&*keyword));
            self.rank.push(order);
            match &*keyword {
                "properties" => {
                    let Some(LocationSegment::Property(name)) = steps.next() else { break };
                    let declared = value.and_then(Value::as_object);
                    self.rank.push(ordinal(declared, &name));
                    self.node = declared.and_then(|map| map.get(&*name));
                    self.enter(parts.next(), true);
                }
                "patternProperties" => {
                    self.node = steps.next().and_then(|step| child(value, &step));
                    self.enter(parts.next(), false);
                }
                "additionalProperties" | "unevaluatedProperties" => {
                    self.node = value;
                    self.enter(parts.next(), false);
                }
                "items" | "additionalItems" | "unevaluatedItems" | "contains" => {
                    // In older drafts an array of schemas is followed by the index of the one that applied.
                    self.node = match value {
                        Some(Value::Array(_)) => steps.next().and_then(|step| child(value, &step)),
                        other => other,
                    };
                    self.enter(parts.next(), false);
                }
                "prefixItems" => {
                    self.node = steps.next().and_then(|step| child(value, &step));
                    self.enter(parts.next(), false);
                }
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => {
                    let Some(step) = steps.next() else { break };
                    if let LocationSegment::Index(index) = step {
                        self.rank.push(index);
                    }
                    self.node = child(value, &step);
                }
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    self.node =
                        value.and_then(Value::as_str).and_then(|name| self.budget.target(self.root, name));
                }
                "required" => self.rank.push(position_in_required(value, error)),
                _ => self.node = value,
            }
        }
        // Segments that the walk did not consume still belong to the path.
        for part in parts {
            self.enter(Some(part), false);
        }
    }

    fn enter(&mut self, part: Option<LocationSegment<'_>>, is_declared: bool) {
        let Some(part) = part else { return };
        let members = self.data.and_then(Value::as_object);
        match &part {
            LocationSegment::Index(index) => self.rank.push(*index),
            // Undeclared properties are ordered as in the value.
            LocationSegment::Property(name) if !is_declared => self.rank.push(ordinal(members, name)),
            LocationSegment::Property(_) => {}
        }
        self.data = child(self.data, &part);
        self.path.enter(&part, is_declared);
    }
}

fn position_in_required(required: Option<&Value>, error: &ValidationError<'_>) -> usize {
    let ValidationErrorKind::Required { property } = error.kind() else { return 0 };
    let names = required.and_then(Value::as_array);
    names.and_then(|names| names.iter().position(|name| name == property)).unwrap_or(usize::MAX)
}

fn ordinal(map: Option<&serde_json::Map<String, Value>>, name: &str) -> usize {
    map.and_then(|map| map.keys().position(|key| key == name)).unwrap_or(usize::MAX)
}

fn child<'s>(value: Option<&'s Value>, step: &LocationSegment<'_>) -> Option<&'s Value> {
    match step {
        LocationSegment::Property(name) => value?.get(&**name),
        LocationSegment::Index(index) => value?.get(*index),
    }
}

fn type_names(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(name) => name.to_string(),
        TypeKind::Multiple(names) => {
            let names: Vec<String> = names.iter().map(|name: JsonType| format!("'{name}'")).collect();
            format!("[{}]", names.join(", "))
        }
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
