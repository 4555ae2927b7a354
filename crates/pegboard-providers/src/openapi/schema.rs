//! Converts schemas of a document to JSON Schema 2020-12, including everything they reference.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::document_set::{DocumentNode, DocumentSet, OpenApiVersion};
use keyword::KeywordShape;
pub(super) use keyword::file_schema;

mod assembly;
mod keyword;

/// Purpose of a schema, which decides how it is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SchemaPurpose {
    /// A request without files.
    Request,
    /// A request that may contain files.
    Upload,
    /// A response. Services break their documented schemas, so only structural keywords are kept.
    Response,
}

/// Converter for the schemas of a document set, shared by all operations.
pub(super) struct SchemaConverter<'l> {
    documents: &'l DocumentSet,
    names: HashMap<(usize, String), DefinitionName>,
    nodes: HashMap<DefinitionName, DocumentNode<'l>>,
    definitions: HashMap<(SchemaPurpose, DefinitionName), Rc<SchemaDefinition>>,
    recursive: HashMap<(SchemaPurpose, DefinitionName), bool>,
    /// Number of converted schemas, and the total size of assembled ones.
    n_read: usize,
    n_bytes: usize,
    /// Value of `n_read` when the current draft was started.
    n_read_at_start: usize,
    /// Conversion errors by location: many operations may share a schema.
    failed: HashMap<*const Value, String>,
}

/// Maximum number of conversions per document, counting repeated use.
const MAX_SCHEMAS: usize = 10_000_000;
/// Maximum number of subschemas in a schema, without references.
const MAX_SUBSCHEMAS: usize = 50_000;
/// Maximum total size of the schemas of all tools of a document.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Name of a definition, used in all schemas.
type DefinitionName = Rc<str>;

/// Referenced schema. Its own references are `#/$defs/…`.
struct SchemaDefinition {
    json: Value,
    uses: Vec<DefinitionName>,
    n_bytes: usize,
}

/// Converted schema before assembly, and the definitions it references.
pub(super) struct SchemaDraft {
    pub(super) json: Value,
    uses: Vec<DefinitionName>,
}

impl SchemaDraft {
    /// Creates an object schema.
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

    /// Creates a schema without references.
    pub(super) fn plain(json: Value) -> Self {
        Self { json, uses: Vec::new() }
    }

    /// Sets the description.
    pub(super) fn describe(&mut self, description: &str) {
        match &mut self.json {
            Value::Object(keywords) => {
                keywords.insert("description".to_owned(), description.into());
            }
            json => *json = json!({"description": description}),
        }
    }
}

impl<'l> SchemaConverter<'l> {
    pub(super) fn of(documents: &'l DocumentSet) -> Self {
        Self {
            documents,
            names: HashMap::new(),
            nodes: HashMap::new(),
            definitions: HashMap::new(),
            recursive: HashMap::new(),
            n_read: 0,
            n_bytes: 0,
            n_read_at_start: 0,
            failed: HashMap::new(),
        }
    }

    /// Converts a schema for a purpose.
    pub(super) fn draft(
        &mut self,
        schema: DocumentNode<'l>,
        purpose: SchemaPurpose,
    ) -> Result<SchemaDraft, String> {
        let place = std::ptr::from_ref(schema.value);
        if let Some(why) = self.failed.get(&place) {
            return Err(why.clone());
        }
        self.n_read_at_start = self.n_read;
        let mut uses = Vec::new();
        match self.convert(schema, purpose, &mut uses) {
            Ok(json) => Ok(SchemaDraft { json, uses }),
            Err(why) => {
                self.failed.insert(place, why.clone());
                Err(why)
            }
        }
    }

    fn convert(
        &mut self,
        part: DocumentNode<'l>,
        purpose: SchemaPurpose,
        uses: &mut Vec<DefinitionName>,
    ) -> Result<Value, String> {
        self.n_read += 1;
        if self.n_read - self.n_read_at_start > MAX_SUBSCHEMAS {
            return Err(format!(
                "a schema has more than {MAX_SUBSCHEMAS} subschemas, not counting references"
            ));
        }
        if self.n_read > MAX_SCHEMAS || self.n_bytes > MAX_BYTES {
            return Err("the schemas of the preceding tools have reached the size limit".to_owned());
        }
        let written = match part.value {
            Value::Object(written) => written,
            Value::Bool(whether) => return Ok(Value::Bool(*whether)),
            _ => return Ok(json!({})),
        };
        let mut made = Map::new();
        if let Some(Value::String(reference)) = written.get("$ref") {
            let name = self.definition_name(part.document, reference)?;
            made.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            uses.push(name);
            // Before 3.1, siblings of `$ref` are ignored.
            if self.documents.version < OpenApiVersion::V31 {
                return Ok(Value::Object(made));
            }
        }
        for (keyword, value) in written {
            let shape = KeywordShape::of(keyword);
            if purpose == SchemaPurpose::Response && !keyword::is_structural(keyword) {
                continue;
            }
            let inside = DocumentNode { value, ..part };
            let converted = match (shape, value) {
                (KeywordShape::Map, Value::Object(_)) => self.convert_map(inside, purpose, uses)?,
                (KeywordShape::List, Value::Array(items)) if !items.is_empty() => {
                    self.convert_list(inside, purpose, uses)?
                }
                (KeywordShape::One, Value::Object(_)) => self.convert(inside, purpose, uses)?,
                (KeywordShape::One, Value::Bool(_)) if purpose != SchemaPurpose::Response => value.clone(),
                // A list of schemas for the first items is `prefixItems` now.
                (KeywordShape::One, Value::Array(items)) if keyword == "items" && !items.is_empty() => {
                    let items = self.convert_list(inside, purpose, uses)?;
                    made.insert("prefixItems".to_owned(), items);
                    continue;
                }
                (KeywordShape::Scalar, _) => match keyword::sanitized(keyword, value) {
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
        map: DocumentNode<'l>,
        purpose: SchemaPurpose,
        uses: &mut Vec<DefinitionName>,
    ) -> Result<Value, String> {
        let mut made = Map::new();
        for (name, schema) in map.members() {
            made.insert(name.to_owned(), self.convert(schema, purpose, uses)?);
        }
        Ok(Value::Object(made))
    }

    fn convert_list(
        &mut self,
        list: DocumentNode<'l>,
        purpose: SchemaPurpose,
        uses: &mut Vec<DefinitionName>,
    ) -> Result<Value, String> {
        list.items().map(|schema| self.convert(schema, purpose, uses)).collect()
    }

    /// Translates keywords of OpenAPI to JSON Schema.
    fn finish(
        &self,
        part: DocumentNode<'l>,
        written: &Map<String, Value>,
        made: &mut Map<String, Value>,
        purpose: SchemaPurpose,
    ) {
        keyword::convert_exclusive_bound(made, "minimum", "exclusiveMinimum");
        keyword::convert_exclusive_bound(made, "maximum", "exclusiveMaximum");
        keyword::stringify_enum(made);
        match purpose {
            SchemaPurpose::Request => self.remove_read_only(part, made),
            SchemaPurpose::Upload => {
                self.remove_read_only(part, made);
                keyword::convert_file(written, made);
            }
            SchemaPurpose::Response => {}
        }
        if let Some(example) = written.get("example").filter(|_| purpose != SchemaPurpose::Response)
            && !made.contains_key("examples")
        {
            made.insert("examples".to_owned(), json!([example]));
        }
        if let Some(property) = written.get("discriminator").and_then(|it| it.get("propertyName")) {
            made.insert("discriminator".to_owned(), json!({"propertyName": property}));
        }
        let is_nullable =
            ["nullable", "x-nullable"].iter().any(|word| written.get(*word) == Some(&Value::Bool(true)));
        // A referenced schema declares for itself whether it is nullable.
        if is_nullable || (purpose == SchemaPurpose::Response && made.contains_key("type")) {
            keyword::make_nullable(made);
        }
    }

    /// Removes properties that only the service sets.
    fn remove_read_only(&self, part: DocumentNode<'l>, made: &mut Map<String, Value>) {
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

    fn find_read_only(&self, schema: DocumentNode<'l>, depth: usize, found: &mut HashSet<&'l str>) {
        const MAX_DEPTH: usize = 8;
        let Ok(schema) = self.documents.follow(schema) else { return };
        for (name, property) in schema.get("properties").into_iter().flat_map(DocumentNode::members) {
            if property.is_true("readOnly")
                || self.documents.follow(property).is_ok_and(|it| it.is_true("readOnly"))
            {
                found.insert(name);
            }
        }
        if depth < MAX_DEPTH {
            for inner in schema.get("allOf").into_iter().flat_map(DocumentNode::items) {
                self.find_read_only(inner, depth + 1, found);
            }
        }
    }

    /// Returns the definition name for a reference.
    fn definition_name(&mut self, document: usize, reference: &str) -> Result<DefinitionName, String> {
        let target = self.documents.target(document, reference)?;
        let key = (target.part.document, target.pointer);
        if let Some(name) = self.names.get(&key) {
            return Ok(Rc::clone(name));
        }
        let last = match key.1.rsplit('/').next() {
            Some(last) if !last.is_empty() => last,
            _ => self.documents.stem(key.0),
        };
        let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '_' | '-' | '.');
        let plain: String =
            last.chars().take(80).map(|each| if is_plain(each) { each } else { '_' }).collect();
        let free = std::iter::once(plain.clone()).chain((2..).map(|number| format!("{plain}_{number}")));
        let name: DefinitionName = free
            .map(DefinitionName::from)
            .find(|name| !self.nodes.contains_key(name))
            .expect("numbers do not end");
        self.nodes.insert(Rc::clone(&name), target.part);
        self.names.insert(key, Rc::clone(&name));
        Ok(name)
    }

    fn definition(
        &mut self,
        name: &DefinitionName,
        purpose: SchemaPurpose,
    ) -> Result<Rc<SchemaDefinition>, String> {
        if let Some(definition) = self.definitions.get(&(purpose, Rc::clone(name))) {
            return Ok(Rc::clone(definition));
        }
        let part = self.nodes[name];
        let SchemaDraft { json, uses } = self.draft(part, purpose)?;
        let n_bytes = json.to_string().len();
        let definition = Rc::new(SchemaDefinition { json, uses, n_bytes });
        self.definitions.insert((purpose, Rc::clone(name)), Rc::clone(&definition));
        Ok(definition)
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::schema::Schema;
    use serde_json::json;

    use super::*;

    /// Converts and assembles a schema of a document in this version.
    fn assembled(version: &str, schema: &Value, schemas: &Value, purpose: SchemaPurpose) -> Value {
        let word = if version == "2.0" { "swagger" } else { "openapi" };
        let documents = DocumentSet::from_root(
            json!({word: version, "here": schema, "components": {"schemas": schemas}}),
        )
        .unwrap();
        let here = documents.root().get("here").unwrap();
        let mut all = SchemaConverter::of(&documents);
        let draft = all.draft(here, purpose).unwrap();
        let assembled = all.assemble(draft, purpose, 100_000).unwrap().json;
        assert_eq!(Schema::new(assembled.clone()).problem(), None, "{assembled:#}");
        assembled
    }

    fn check(version: &str, schema: &Value, expected: &Value) {
        let assembled = assembled(
            version,
            schema,
            &json!({"S": {"type": "string"}, "I": {"type": "integer"}}),
            SchemaPurpose::Request,
        );
        assert_eq!(assembled, *expected, "{version} {schema}");
    }

    #[test]
    fn openapi_keywords_become_json_schema() {
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
    fn siblings_of_a_reference_count_since_3_1() {
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
        let assembled = assembled(
            "3.0.0",
            &json!({"$ref": "#/components/schemas/Node"}),
            &schemas,
            SchemaPurpose::Request,
        );
        assert_eq!(
            assembled,
            json!({
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "id": {"type": "integer"}}}},
            })
        );
    }

    #[test]
    fn read_only_properties_are_removed_from_requests() {
        let schemas = json!({"Base": {"properties": {"id": {"type": "string", "readOnly": true}}}});
        let written = json!({
            "type": "object",
            "allOf": [{"$ref": "#/components/schemas/Base"}],
            "properties": {"name": {"type": "string"}, "made": {"type": "string", "readOnly": true}},
            "required": ["id", "made", "name"],
        });
        let sent = assembled("3.0.0", &written, &schemas, SchemaPurpose::Request);
        assert_eq!(sent["required"], json!(["name"]));
        assert_eq!(sent["properties"], json!({"name": {"type": "string"}}));
    }

    #[test]
    fn response_schemas_keep_only_structure() {
        let written = json!({
            "type": "object",
            "properties": {"when": {"type": "string", "format": "date-time", "description": "d", "enum": ["a"]}},
            "required": ["when"],
            "additionalProperties": false,
        });
        let response = assembled("3.0.0", &written, &json!({}), SchemaPurpose::Response);
        assert_eq!(
            response,
            json!({
                "type": ["object", "null"],
                "properties": {"when": {"type": ["string", "null"], "description": "d"}},
            })
        );
    }

    #[test]
    fn the_total_number_of_schemas_is_limited() {
        let documents = DocumentSet::from_root(
            json!({"openapi": "3.0.0", "a": {"type": "string"}, "b": {"type": "string"}}),
        )
        .unwrap();
        let mut all = SchemaConverter::of(&documents);
        all.n_read = MAX_SCHEMAS - 1;
        assert!(all.draft(documents.root().get("a").unwrap(), SchemaPurpose::Request).is_ok());
        let why = all.draft(documents.root().get("b").unwrap(), SchemaPurpose::Request).err().unwrap();
        assert_eq!(why, "the schemas of the preceding tools have reached the size limit");
    }

    #[test]
    fn exponential_references_stay_small() {
        let mut schemas = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/components/schemas/L{}", level + 1)});
            schemas.insert(format!("L{level}"), json!({"properties": {"a": next, "b": next, "c": next}}));
        }
        schemas.insert("L40".to_owned(), json!({"type": "string"}));
        let assembled = assembled(
            "3.0.0",
            &json!({"$ref": "#/components/schemas/L0"}),
            &Value::Object(schemas),
            SchemaPurpose::Request,
        );
        assert!(assembled.to_string().len() < 10_000);
    }
}
