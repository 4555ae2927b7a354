//! Schemas of a document as JSON Schema 2020-12, each with all that it refers to.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::library::{Library, Part, Version};
use keyword::Shape;
pub(super) use keyword::file_schema;

mod assembly;
mod keyword;

/// What a schema is for, which decides how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Something that is sent.
    Request,
    /// Something that is sent and may hold files.
    Upload,
    /// Something that comes back. Services do not keep what their documents promise, so that only shapes are told.
    Answer,
}

/// The schemas of a library, made once and used by all operations.
pub(super) struct Schemas<'l> {
    library: &'l Library,
    names: HashMap<(usize, String), Name>,
    places: HashMap<Name, Part<'l>>,
    definitions: HashMap<(Purpose, Name), Rc<Definition>>,
    recursive: HashMap<(Purpose, Name), bool>,
    /// How many schemas have been read, and how many bytes of them have been handed out.
    n_read: usize,
    n_bytes: usize,
    /// How many had been read when the one that is being read was begun.
    n_before: usize,
    /// Why some cannot be read, by where they are: many operations may share one.
    failed: HashMap<*const Value, String>,
}

/// How many schemas are read for one document, each as often as it is used.
const MAX_READ: usize = 10_000_000;
/// How many schemas one may have inside, without what it refers to.
const MAX_INSIDE: usize = 50_000;
/// How many bytes the schemas of all tools of one document may have.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// What a definition is called, in all schemas that use it.
type Name = Rc<str>;

/// A schema that others refer to. Its own references are `#/$defs/…`.
struct Definition {
    json: Value,
    uses: Vec<Name>,
    n_bytes: usize,
}

/// A schema that is being made, and what it refers to.
pub(super) struct Draft {
    pub(super) json: Value,
    uses: Vec<Name>,
}

impl Draft {
    /// An object with these properties.
    pub(super) fn object(properties: Vec<(String, Self)>, required: Vec<String>) -> Self {
        let mut members = Map::new();
        let mut uses = Vec::new();
        for (name, property) in properties {
            members.insert(name, property.json);
            uses.extend(property.uses);
        }
        let mut json = json!({"type": "object", "properties": members});
        if !required.is_empty() {
            json["required"] = required.into();
        }
        Self { json, uses }
    }

    /// A schema that refers to nothing.
    pub(super) fn plain(json: Value) -> Self {
        Self { json, uses: Vec::new() }
    }

    /// Adds words for the reader, unless there are some.
    pub(super) fn describe(&mut self, description: &str) {
        match &mut self.json {
            Value::Object(keywords) => {
                keywords.insert("description".to_owned(), description.into());
            }
            json => *json = json!({"description": description}),
        }
    }
}

impl<'l> Schemas<'l> {
    pub(super) fn of(library: &'l Library) -> Self {
        Self {
            library,
            names: HashMap::new(),
            places: HashMap::new(),
            definitions: HashMap::new(),
            recursive: HashMap::new(),
            n_read: 0,
            n_bytes: 0,
            n_before: 0,
            failed: HashMap::new(),
        }
    }

    /// A schema of the document, read for a purpose.
    pub(super) fn draft(&mut self, schema: Part<'l>, purpose: Purpose) -> Result<Draft, String> {
        let place = std::ptr::from_ref(schema.value);
        if let Some(why) = self.failed.get(&place) {
            return Err(why.clone());
        }
        self.n_before = self.n_read;
        let mut uses = Vec::new();
        match self.convert(schema, purpose, &mut uses) {
            Ok(json) => Ok(Draft { json, uses }),
            Err(why) => {
                self.failed.insert(place, why.clone());
                Err(why)
            }
        }
    }

    fn convert(&mut self, part: Part<'l>, purpose: Purpose, uses: &mut Vec<Name>) -> Result<Value, String> {
        self.n_read += 1;
        if self.n_read - self.n_before > MAX_INSIDE {
            return Err(format!("a schema has more than {MAX_INSIDE} parts without what it refers to"));
        }
        if self.n_read > MAX_READ || self.n_bytes > MAX_BYTES {
            return Err("the schemas of the tools before it are as large as all may be together".to_owned());
        }
        let written = match part.value {
            Value::Object(written) => written,
            Value::Bool(whether) => return Ok(Value::Bool(*whether)),
            _ => return Ok(json!({})),
        };
        let mut made = Map::new();
        if let Some(Value::String(reference)) = written.get("$ref") {
            let name = self.name(part.document, reference)?;
            made.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            uses.push(name);
            // Before 3.1 what stands beside a reference does not count.
            if self.library.version < Version::V31 {
                return Ok(Value::Object(made));
            }
        }
        for (keyword, value) in written {
            let shape = Shape::of(keyword);
            if purpose == Purpose::Answer && !keyword::is_of_shape(keyword) {
                continue;
            }
            let inside = Part { value, ..part };
            let converted = match (shape, value) {
                (Shape::Map, Value::Object(_)) => self.convert_map(inside, purpose, uses)?,
                (Shape::List, Value::Array(items)) if !items.is_empty() => {
                    self.convert_list(inside, purpose, uses)?
                }
                (Shape::One, Value::Object(_)) => self.convert(inside, purpose, uses)?,
                (Shape::One, Value::Bool(_)) if purpose != Purpose::Answer => value.clone(),
                // A list of schemas for the first items has a keyword of its own now.
                (Shape::One, Value::Array(items)) if keyword == "items" && !items.is_empty() => {
                    let items = self.convert_list(inside, purpose, uses)?;
                    made.insert("prefixItems".to_owned(), items);
                    continue;
                }
                (Shape::Word, _) => match keyword::checked(keyword, value) {
                    Some(value) => value,
                    None => continue,
                },
                _ => continue,
            };
            made.insert(keyword.clone(), converted);
        }
        self.finish(part, written, &mut made, purpose);
        Ok(Value::Object(made))
    }

    fn convert_map(
        &mut self,
        map: Part<'l>,
        purpose: Purpose,
        uses: &mut Vec<Name>,
    ) -> Result<Value, String> {
        let mut made = Map::new();
        for (name, schema) in map.members() {
            made.insert(name.to_owned(), self.convert(schema, purpose, uses)?);
        }
        Ok(Value::Object(made))
    }

    fn convert_list(
        &mut self,
        list: Part<'l>,
        purpose: Purpose,
        uses: &mut Vec<Name>,
    ) -> Result<Value, String> {
        list.items().map(|schema| self.convert(schema, purpose, uses)).collect()
    }

    /// Says in the words of JSON Schema what OpenAPI has words of its own for.
    fn finish(
        &self,
        part: Part<'l>,
        written: &Map<String, Value>,
        made: &mut Map<String, Value>,
        purpose: Purpose,
    ) {
        keyword::exclusive(made, "minimum", "exclusiveMinimum");
        keyword::exclusive(made, "maximum", "exclusiveMaximum");
        keyword::texts_of_enum(made);
        match purpose {
            Purpose::Request => self.leave_out_read_only(part, made),
            Purpose::Upload => {
                self.leave_out_read_only(part, made);
                keyword::file(written, made);
            }
            Purpose::Answer => {}
        }
        if let Some(example) = written.get("example").filter(|_| purpose != Purpose::Answer)
            && !made.contains_key("examples")
        {
            made.insert("examples".to_owned(), json!([example]));
        }
        if let Some(property) = written.get("discriminator").and_then(|it| it.get("propertyName")) {
            made.insert("discriminator".to_owned(), json!({"propertyName": property}));
        }
        let is_nullable =
            ["nullable", "x-nullable"].iter().any(|word| written.get(*word) == Some(&Value::Bool(true)));
        // A reference leads to something that may be nothing already.
        if is_nullable || (purpose == Purpose::Answer && made.contains_key("type")) {
            keyword::nullable(made);
        }
    }

    /// Nobody sends what only the service sets.
    fn leave_out_read_only(&self, part: Part<'l>, made: &mut Map<String, Value>) {
        if !["required", "properties"].iter().any(|keyword| made.contains_key(*keyword)) {
            return;
        }
        let mut read_only = HashSet::new();
        self.find_read_only(part, 0, &mut read_only);
        if read_only.is_empty() {
            return;
        }
        if let Some(Value::Object(properties)) = made.get_mut("properties") {
            properties.retain(|name, _| !read_only.contains(name.as_str()));
        }
        if let Some(Value::Array(required)) = made.get_mut("required") {
            required.retain(|name| !name.as_str().is_some_and(|name| read_only.contains(name)));
        }
        if made.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            made.shift_remove("required");
        }
    }

    fn find_read_only(&self, schema: Part<'l>, depth: usize, found: &mut HashSet<&'l str>) {
        const MAX_DEPTH: usize = 8;
        let Ok(schema) = self.library.follow(schema) else { return };
        for (name, property) in schema.get("properties").into_iter().flat_map(Part::members) {
            if property.says("readOnly") || self.library.follow(property).is_ok_and(|it| it.says("readOnly"))
            {
                found.insert(name);
            }
        }
        if depth < MAX_DEPTH {
            for inner in schema.get("allOf").into_iter().flat_map(Part::items) {
                self.find_read_only(inner, depth + 1, found);
            }
        }
    }

    /// The name of what a reference leads to.
    fn name(&mut self, document: usize, reference: &str) -> Result<Name, String> {
        let target = self.library.target(document, reference)?;
        let key = (target.part.document, target.pointer);
        if let Some(name) = self.names.get(&key) {
            return Ok(Rc::clone(name));
        }
        let last = match key.1.rsplit('/').next() {
            Some(last) if !last.is_empty() => last,
            _ => self.library.stem(key.0),
        };
        let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '_' | '-' | '.');
        let plain: String =
            last.chars().take(80).map(|each| if is_plain(each) { each } else { '_' }).collect();
        let free = std::iter::once(plain.clone()).chain((2..).map(|number| format!("{plain}_{number}")));
        let name: Name =
            free.map(Name::from).find(|name| !self.places.contains_key(name)).expect("numbers do not end");
        self.places.insert(Rc::clone(&name), target.part);
        self.names.insert(key, Rc::clone(&name));
        Ok(name)
    }

    fn definition(&mut self, name: &Name, purpose: Purpose) -> Result<Rc<Definition>, String> {
        if let Some(definition) = self.definitions.get(&(purpose, Rc::clone(name))) {
            return Ok(Rc::clone(definition));
        }
        let part = self.places[name];
        let Draft { json, uses } = self.draft(part, purpose)?;
        let n_bytes = json.to_string().len();
        let definition = Rc::new(Definition { json, uses, n_bytes });
        self.definitions.insert((purpose, Rc::clone(name)), Rc::clone(&definition));
        Ok(definition)
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::schema::Schema;
    use serde_json::json;

    use super::*;

    /// What a schema of a document in this version comes to.
    fn made(version: &str, schema: &Value, schemas: &Value, purpose: Purpose) -> Value {
        let word = if version == "2.0" { "swagger" } else { "openapi" };
        let library =
            Library::of(json!({word: version, "here": schema, "components": {"schemas": schemas}})).unwrap();
        let here = library.root().get("here").unwrap();
        let mut all = Schemas::of(&library);
        let draft = all.draft(here, purpose).unwrap();
        let made = all.assemble(draft, purpose, 100_000).unwrap().json;
        assert_eq!(Schema::new(made.clone()).problem(), None, "{made:#}");
        made
    }

    fn check(version: &str, schema: &Value, expected: &Value) {
        let made = made(
            version,
            schema,
            &json!({"S": {"type": "string"}, "I": {"type": "integer"}}),
            Purpose::Request,
        );
        assert_eq!(made, *expected, "{version} {schema}");
    }

    #[test]
    fn the_words_of_openapi_become_words_of_json_schema() {
        let cases = [
            (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"allOf": [{"$ref": "#/components/schemas/S"}], "nullable": true, "description": "d"}),
                json!({"description": "d", "anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
            ),
            (json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1})),
            (json!({"maximum": 1, "exclusiveMaximum": false}), json!({"maximum": 1})),
            (json!({"type": "string", "example": "x"}), json!({"type": "string", "examples": ["x"]})),
            (json!({"type": "file"}), json!({"type": "string"})),
            (json!({"type": "strange", "required": true, "minLength": "x"}), json!({})),
            (
                json!({"type": "string", "enum": [1, true, "a"]}),
                json!({"type": "string", "enum": ["1", "true", "a"]}),
            ),
            (
                json!({"items": [{"type": "string"}], "xml": {}, "x-a": 1}),
                json!({"prefixItems": [{"type": "string"}]}),
            ),
            (
                json!({"oneOf": [{"type": "string"}], "discriminator": {"propertyName": "k", "mapping": {"a": "A"}}}),
                json!({"oneOf": [{"type": "string"}], "discriminator": {"propertyName": "k"}}),
            ),
            (json!({"$ref": "#/components/schemas/S"}), json!({"type": "string"})),
        ];
        for (written, expected) in &cases {
            for version in ["2.0", "3.0.3", "3.1.0", "3.2.0"] {
                check(version, written, expected);
            }
        }
    }

    #[test]
    fn what_stands_beside_a_reference_counts_since_3_1() {
        let written = json!({"$ref": "#/components/schemas/I", "description": "here", "minimum": 3});
        check("3.0.0", &written, &json!({"type": "integer"}));
        let expected = json!({"$ref": "#/$defs/I", "description": "here", "minimum": 3, "$defs": {"I": {"type": "integer"}}});
        check("3.1.0", &written, &expected);
        let words = json!({"$ref": "#/components/schemas/I", "description": "here"});
        check("3.1.0", &words, &json!({"type": "integer", "description": "here"}));
    }

    #[test]
    fn cycles_stay_references() {
        let schemas = json!({
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}, "id": {"$ref": "#/components/schemas/Id"}}},
            "Id": {"type": "integer"},
        });
        let made = made("3.0.0", &json!({"$ref": "#/components/schemas/Node"}), &schemas, Purpose::Request);
        assert_eq!(
            made,
            json!({
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "id": {"type": "integer"}}}},
            })
        );
    }

    #[test]
    fn what_only_the_service_sets_is_not_sent() {
        let schemas = json!({"Base": {"properties": {"id": {"type": "string", "readOnly": true}}}});
        let written = json!({
            "type": "object",
            "allOf": [{"$ref": "#/components/schemas/Base"}],
            "properties": {"name": {"type": "string"}, "made": {"type": "string", "readOnly": true}},
            "required": ["id", "made", "name"],
        });
        let sent = made("3.0.0", &written, &schemas, Purpose::Request);
        assert_eq!(sent["required"], json!(["name"]));
        assert_eq!(sent["properties"], json!({"name": {"type": "string"}}));
    }

    #[test]
    fn of_an_answer_only_the_shape_is_told() {
        let written = json!({
            "type": "object",
            "properties": {"when": {"type": "string", "format": "date-time", "description": "d", "enum": ["a"]}},
            "required": ["when"],
            "additionalProperties": false,
        });
        let told = made("3.0.0", &written, &json!({}), Purpose::Answer);
        assert_eq!(
            told,
            json!({
                "type": ["object", "null"],
                "properties": {"when": {"type": ["string", "null"], "description": "d"}},
            })
        );
    }

    #[test]
    fn what_all_come_to_has_an_end() {
        let library =
            Library::of(json!({"openapi": "3.0.0", "a": {"type": "string"}, "b": {"type": "string"}}))
                .unwrap();
        let mut all = Schemas::of(&library);
        all.n_read = MAX_READ - 1;
        assert!(all.draft(library.root().get("a").unwrap(), Purpose::Request).is_ok());
        let why = all.draft(library.root().get("b").unwrap(), Purpose::Request).err().unwrap();
        assert_eq!(why, "the schemas of the tools before it are as large as all may be together");
    }

    #[test]
    fn bombs_of_references_stay_small() {
        let mut schemas = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/components/schemas/L{}", level + 1)});
            schemas.insert(format!("L{level}"), json!({"properties": {"a": next, "b": next, "c": next}}));
        }
        schemas.insert("L40".to_owned(), json!({"type": "string"}));
        let made = made(
            "3.0.0",
            &json!({"$ref": "#/components/schemas/L0"}),
            &Value::Object(schemas),
            Purpose::Request,
        );
        assert!(made.to_string().len() < 10_000);
    }
}
