//! Assembles a schema and its definitions into a self-contained one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::keyword::for_each_subschema;
use super::{DefinitionName, SchemaConverter, SchemaDefinition, SchemaDraft, SchemaPurpose};

/// Maximum size of a definition that is always inlined.
const SMALL_BYTES: usize = 300;
/// Maximum inlining depth; the validator limits the total depth.
const MAX_INLINE_DEPTH: usize = 40;
/// Maximum number of definitions visited to detect recursion.
const MAX_VISITED: usize = 200;
/// Maximum size of a schema without its definitions.
const MAX_OWN_BYTES: usize = 1024 * 1024;
/// Maximum number of patterns in a schema; the validator has a limit too.
const MAX_PATTERNS: usize = 100;
/// Keywords that do not affect validation.
const ANNOTATIONS: [&str; 7] =
    ["title", "description", "deprecated", "readOnly", "writeOnly", "default", "examples"];

/// Self-contained schema.
pub(in crate::openapi) struct AssembledSchema {
    pub(in crate::openapi) json: Value,
    /// `true` if definitions were reduced to their type to save space.
    pub(in crate::openapi) is_truncated: bool,
}

impl SchemaConverter<'_> {
    /// Assembles a schema with its definitions. Definitions that are small or used once are inlined; all
    /// others, and recursive ones, go to `$defs`. Definitions beyond `max_bytes` are reduced to their type.
    pub(in crate::openapi) fn assemble(
        &mut self,
        draft: SchemaDraft,
        purpose: SchemaPurpose,
        max_bytes: usize,
    ) -> Result<AssembledSchema, String> {
        let mut assembly = self.gather(&draft, purpose, max_bytes)?;
        let is_truncated = !assembly.truncated.is_empty();
        let mut json = draft.json;
        assembly.expand(&mut json, 0);
        let mut definitions = Map::new();
        while let Some(name) = assembly.kept.pop_front() {
            let mut definition = assembly.definitions[&name].json.clone();
            assembly.expand(&mut definition, 0);
            definitions.insert(name.to_string(), definition);
        }
        if has_infinite_recursion(&definitions) {
            return Err("a schema is infinitely recursive".to_owned());
        }
        if let (false, Value::Object(keywords)) = (definitions.is_empty(), &mut json) {
            keywords.insert("$defs".to_owned(), definitions.into());
        }
        if n_patterns(&mut json) > MAX_PATTERNS {
            without_patterns(&mut json);
        }
        Ok(AssembledSchema { json, is_truncated })
    }

    /// Collects all definitions that a schema references, nearest first.
    fn gather(
        &mut self,
        draft: &SchemaDraft,
        purpose: SchemaPurpose,
        max_bytes: usize,
    ) -> Result<SchemaAssembly, String> {
        let mut assembly = SchemaAssembly::default();
        let mut waiting: VecDeque<DefinitionName> = draft.uses.iter().cloned().collect();
        let mut n_bytes = draft.json.to_string().len();
        if n_bytes > MAX_OWN_BYTES {
            return Err(format!(
                "its schema has {n_bytes} bytes, not counting references; the limit is {MAX_OWN_BYTES}"
            ));
        }
        while let Some(name) = waiting.pop_front() {
            let n_uses = assembly.uses.entry(Rc::clone(&name)).or_default();
            *n_uses += 1;
            if *n_uses > 1 {
                continue;
            }
            let mut definition = self.definition(&name, purpose)?;
            n_bytes += definition.n_bytes;
            if n_bytes > max_bytes {
                assembly.truncated.insert(Rc::clone(&name));
                definition = Rc::new(stub(&definition));
            } else if self.is_recursive(&name, purpose)? {
                assembly.recursive.insert(Rc::clone(&name));
            }
            waiting.extend(definition.uses.iter().cloned());
            assembly.definitions.insert(name, definition);
        }
        self.n_bytes += n_bytes.min(max_bytes + MAX_OWN_BYTES);
        Ok(assembly)
    }

    /// Returns `true` if a definition references itself, or if that takes too long to find out.
    fn is_recursive(&mut self, name: &DefinitionName, purpose: SchemaPurpose) -> Result<bool, String> {
        let key = (purpose, Rc::clone(name));
        if let Some(known) = self.recursive.get(&key) {
            return Ok(*known);
        }
        let mut seen: HashSet<DefinitionName> = HashSet::new();
        let mut waiting = self.definition(name, purpose)?.uses.clone();
        let mut found = false;
        while let Some(next) = waiting.pop() {
            // A false positive only means that it stays a reference.
            if next == *name || seen.len() > MAX_VISITED {
                found = true;
                break;
            }
            if seen.insert(Rc::clone(&next)) {
                waiting.extend(self.definition(&next, purpose)?.uses.iter().cloned());
            }
        }
        self.recursive.insert(key, found);
        Ok(found)
    }
}

/// Reduces a definition to its type.
fn stub(definition: &SchemaDefinition) -> SchemaDefinition {
    let kind = definition.json.get("type").cloned();
    let json = kind.map_or_else(|| json!({}), |kind| json!({"type": kind}));
    SchemaDefinition { n_bytes: json.to_string().len(), json, uses: Vec::new() }
}

#[derive(Default)]
struct SchemaAssembly {
    definitions: HashMap<DefinitionName, Rc<SchemaDefinition>>,
    uses: HashMap<DefinitionName, usize>,
    recursive: HashSet<DefinitionName>,
    truncated: HashSet<DefinitionName>,
    /// Definitions to be written to `$defs`.
    kept: VecDeque<DefinitionName>,
    written: HashSet<DefinitionName>,
}

impl SchemaAssembly {
    /// Inlines definitions, or queues them for `$defs`.
    fn expand(&mut self, schema: &mut Value, depth: usize) {
        if let Some(name) = reference(schema)
            .and_then(|name| self.definitions.get_key_value(name))
            .map(|(name, _)| Rc::clone(name))
        {
            if self.can_inline(&name, schema, depth) {
                let mut definition = self.definitions[&name].json.clone();
                if let (Value::Object(made), Value::Object(annotations)) = (&mut definition, &*schema) {
                    made.extend(
                        annotations
                            .iter()
                            .filter(|(keyword, _)| *keyword != "$ref")
                            .map(|(keyword, value)| (keyword.clone(), value.clone())),
                    );
                }
                *schema = definition;
                return self.expand(schema, depth + 1);
            }
            if self.written.insert(Rc::clone(&name)) {
                self.kept.push_back(name);
            }
        }
        for_each_subschema(schema, &mut |inner| self.expand(inner, depth + 1));
    }

    fn can_inline(&self, name: &DefinitionName, schema: &Value, depth: usize) -> bool {
        let definition = &self.definitions[name];
        let is_small = definition.n_bytes <= SMALL_BYTES && definition.uses.is_empty();
        let is_plain = schema.as_object().is_some_and(|keywords| {
            keywords.keys().all(|keyword| keyword == "$ref" || ANNOTATIONS.contains(&keyword.as_str()))
        });
        let has_only_annotations =
            is_plain && (definition.json.is_object() || schema.as_object().is_some_and(|it| it.len() == 1));
        (self.uses[name] == 1 || is_small)
            && has_only_annotations
            && depth < MAX_INLINE_DEPTH
            && !self.recursive.contains(name)
    }
}

/// Returns `true` if a definition applies itself to the same value, so that validation would not end.
fn has_infinite_recursion(definitions: &Map<String, Value>) -> bool {
    let mut applied: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, definition) in definitions {
        let mut references = Vec::new();
        find_applied(definition, &mut references);
        applied.insert(name, references);
    }
    // Definitions that apply no remaining one terminate and are removed; the rest is cyclic.
    loop {
        let n_left = applied.len();
        let ended: Vec<&str> = applied
            .iter()
            .filter(|(_, references)| !references.iter().any(|reference| applied.contains_key(reference)))
            .map(|(name, _)| *name)
            .collect();
        for name in ended {
            applied.remove(name);
        }
        if applied.len() == n_left {
            return n_left > 0;
        }
    }
}

/// Collects the definitions that a schema applies to the same value.
fn find_applied<'s>(schema: &'s Value, found: &mut Vec<&'s str>) {
    found.extend(reference(schema));
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let inner = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
        inner.for_each(|inner| find_applied(inner, found));
    }
    for keyword in ["not", "if", "then", "else"] {
        schema.get(keyword).into_iter().for_each(|inner| find_applied(inner, found));
    }
    let dependent = schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten();
    dependent.for_each(|(_, inner)| find_applied(inner, found));
}

/// Returns the definition that a schema references.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

fn n_patterns(schema: &mut Value) -> usize {
    let mut total = 0;
    visit(schema, &mut |keywords| total += usize::from(keywords.contains_key("pattern")));
    total
}

fn without_patterns(schema: &mut Value) {
    visit(schema, &mut |keywords| drop(keywords.shift_remove("pattern")));
}

/// Visits every subschema.
fn visit(schema: &mut Value, work: &mut dyn FnMut(&mut Map<String, Value>)) {
    if let Value::Object(keywords) = schema {
        work(keywords);
        if let Some(Value::Object(definitions)) = keywords.get_mut("$defs") {
            definitions.values_mut().for_each(|definition| visit(definition, work));
        }
    }
    for_each_subschema(schema, &mut |inner| visit(inner, work));
}
