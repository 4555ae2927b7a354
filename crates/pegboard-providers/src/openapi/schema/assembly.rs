//! A schema put together with all that it refers to, so that it stands by itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::keyword::for_each_inside;
use super::{Definition, Draft, Name, Purpose, Schemas};

/// A definition that is no larger stands wherever it is used.
const SMALL_BYTES: usize = 300;
/// How deep definitions are put into one another; the validator has a limit for the whole.
const MAX_INLINE_DEPTH: usize = 40;
/// How many definitions are looked at to find out whether one leads to itself.
const MAX_LOOKED_AT: usize = 200;
/// How large a schema may be without what it refers to.
const MAX_OWN_BYTES: usize = 1024 * 1024;
/// How many patterns a schema may have; the validator has a limit too.
const MAX_PATTERNS: usize = 100;
/// Words that may be changed without changing what is right.
const WORDS: [&str; 7] =
    ["title", "description", "deprecated", "readOnly", "writeOnly", "default", "examples"];

/// A schema that stands by itself.
pub(in crate::openapi) struct Assembled {
    pub(in crate::openapi) json: Value,
    /// Whether parts were left out because there was no room for them.
    pub(in crate::openapi) is_cut: bool,
}

impl Schemas<'_> {
    /// Puts a schema together with all that it refers to. A definition that is used once, or is small, stands where it
    /// is used; all others, and those that lead to themselves, are under `$defs`. What there is no room for is told by
    /// its type alone.
    pub(in crate::openapi) fn assemble(
        &mut self,
        draft: Draft,
        purpose: Purpose,
        max_bytes: usize,
    ) -> Result<Assembled, String> {
        let mut assembly = self.gather(&draft, purpose, max_bytes)?;
        let is_cut = !assembly.cut.is_empty();
        let mut json = draft.json;
        assembly.expand(&mut json, 0);
        let mut definitions = Map::new();
        while let Some(name) = assembly.kept.pop_front() {
            let mut definition = assembly.definitions[&name].json.clone();
            assembly.expand(&mut definition, 0);
            definitions.insert(name.to_string(), definition);
        }
        if is_endless(&definitions) {
            return Err("a schema refers to itself without an end".to_owned());
        }
        if let (false, Value::Object(keywords)) = (definitions.is_empty(), &mut json) {
            keywords.insert("$defs".to_owned(), definitions.into());
        }
        if n_patterns(&mut json) > MAX_PATTERNS {
            without_patterns(&mut json);
        }
        Ok(Assembled { json, is_cut })
    }

    /// Finds everything that a schema refers to, nearest first.
    fn gather(&mut self, draft: &Draft, purpose: Purpose, max_bytes: usize) -> Result<Assembly, String> {
        let mut assembly = Assembly::default();
        let mut waiting: VecDeque<Name> = draft.uses.iter().cloned().collect();
        let mut n_bytes = draft.json.to_string().len();
        if n_bytes > MAX_OWN_BYTES {
            return Err(format!(
                "its schema has {n_bytes} bytes without what it refers to; {MAX_OWN_BYTES} are fine"
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
                assembly.cut.insert(Rc::clone(&name));
                definition = Rc::new(stub(&definition));
            } else if self.leads_to_itself(&name, purpose)? {
                assembly.recursive.insert(Rc::clone(&name));
            }
            waiting.extend(definition.uses.iter().cloned());
            assembly.definitions.insert(name, definition);
        }
        self.n_bytes += n_bytes.min(max_bytes + MAX_OWN_BYTES);
        Ok(assembly)
    }

    /// Whether a definition leads to itself, as far as that is soon found out.
    fn leads_to_itself(&mut self, name: &Name, purpose: Purpose) -> Result<bool, String> {
        let key = (purpose, Rc::clone(name));
        if let Some(known) = self.recursive.get(&key) {
            return Ok(*known);
        }
        let mut seen: HashSet<Name> = HashSet::new();
        let mut waiting = self.definition(name, purpose)?.uses.clone();
        let mut found = false;
        while let Some(next) = waiting.pop() {
            // Where it takes too long it may as well, for that only means that it stays a reference.
            if next == *name || seen.len() > MAX_LOOKED_AT {
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

/// What there is no room for, by its type alone.
fn stub(definition: &Definition) -> Definition {
    let kind = definition.json.get("type").cloned();
    let json = kind.map_or_else(|| json!({}), |kind| json!({"type": kind}));
    Definition { n_bytes: json.to_string().len(), json, uses: Vec::new() }
}

#[derive(Default)]
struct Assembly {
    definitions: HashMap<Name, Rc<Definition>>,
    uses: HashMap<Name, usize>,
    recursive: HashSet<Name>,
    cut: HashSet<Name>,
    /// Definitions that stay definitions, and have yet to be written.
    kept: VecDeque<Name>,
    written: HashSet<Name>,
}

impl Assembly {
    /// Puts definitions where they are used, or notes that they are needed.
    fn expand(&mut self, schema: &mut Value, depth: usize) {
        if let Some(name) = reference(schema)
            .and_then(|name| self.definitions.get_key_value(name))
            .map(|(name, _)| Rc::clone(name))
        {
            if self.stands_in_place(&name, schema, depth) {
                let mut definition = self.definitions[&name].json.clone();
                if let (Value::Object(made), Value::Object(words)) = (&mut definition, &*schema) {
                    made.extend(
                        words
                            .iter()
                            .filter(|(word, _)| *word != "$ref")
                            .map(|(word, value)| (word.clone(), value.clone())),
                    );
                }
                *schema = definition;
                return self.expand(schema, depth + 1);
            }
            if self.written.insert(Rc::clone(&name)) {
                self.kept.push_back(name);
            }
        }
        for_each_inside(schema, &mut |inner| self.expand(inner, depth + 1));
    }

    fn stands_in_place(&self, name: &Name, schema: &Value, depth: usize) -> bool {
        let definition = &self.definitions[name];
        let is_small = definition.n_bytes <= SMALL_BYTES && definition.uses.is_empty();
        let is_plain = schema.as_object().is_some_and(|keywords| {
            keywords.keys().all(|keyword| keyword == "$ref" || WORDS.contains(&keyword.as_str()))
        });
        let has_words_only =
            is_plain && (definition.json.is_object() || schema.as_object().is_some_and(|it| it.len() == 1));
        (self.uses[name] == 1 || is_small)
            && has_words_only
            && depth < MAX_INLINE_DEPTH
            && !self.recursive.contains(name)
    }
}

/// Whether a definition applies itself to the very value that it applies to, so that no check of it would end.
fn is_endless(definitions: &Map<String, Value>) -> bool {
    let mut applied: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, definition) in definitions {
        let mut references = Vec::new();
        find_applied(definition, &mut references);
        applied.insert(name, references);
    }
    // What applies nothing that is left ends, so it is taken away; what stays applies itself.
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

/// The definitions that a schema applies to the same value, not to a part of it.
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

/// The definition that a schema refers to.
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

/// Looks at every schema in one.
fn visit(schema: &mut Value, work: &mut dyn FnMut(&mut Map<String, Value>)) {
    if let Value::Object(keywords) = schema {
        work(keywords);
        if let Some(Value::Object(definitions)) = keywords.get_mut("$defs") {
            definitions.values_mut().for_each(|definition| visit(definition, work));
        }
    }
    for_each_inside(schema, &mut |inner| visit(inner, work));
}
