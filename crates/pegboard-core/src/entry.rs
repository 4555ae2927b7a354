//! Tool entries: name, description, schemas, tags and handler.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pegboard_json::RawJson;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::ToolError;
use crate::handler::{Handler, TypedFunction};
use crate::schema::Schema;

/// A tool that can be registered and called.
///
/// ```
/// use pegboard_core::entry::ToolEntry;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Shout {
///     text: String,
/// }
///
/// let shout = ToolEntry::new("shout", "Upper-case text", |shout: Shout| async move {
///     Ok(shout.text.to_uppercase())
/// })
/// .tag("text");
/// assert_eq!(shout.name(), "shout");
/// assert_eq!(shout.input_schema().as_json()["required"], serde_json::json!(["text"]));
/// ```
#[derive(Clone)]
pub struct ToolEntry {
    name: Arc<str>,
    title: Option<String>,
    description: String,
    input_schema: Schema,
    output_schema: Schema,
    tags: Vec<String>,
    annotations: ToolAnnotations,
    instructions: Option<String>,
    queue: Option<String>,
    is_managed: bool,
    validates_own_arguments: bool,
    cache: Option<Duration>,
    definition: Option<RawJson>,
    handler: Arc<dyn Handler>,
}

impl ToolEntry {
    /// Creates a tool with schemas derived from the function's argument and return type.
    ///
    /// ```
    /// # use pegboard_core::entry::ToolEntry;
    /// let double = ToolEntry::new("double", "Twice a number", |n: f64| async move { Ok(n * 2.0) });
    /// assert_eq!(*double.output_schema().as_json(), serde_json::json!({"type": "number"}));
    /// ```
    pub fn new<A, R, H, F>(name: impl Into<Arc<str>>, description: impl Into<String>, function: H) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(A) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send,
    {
        Self::from_fn(name, description, function)
            .with_input_schema(Schema::of_input::<A>())
            .with_output_schema(Schema::of_output::<R>())
    }

    /// Creates a tool without schemas; it accepts and returns any value until they are set.
    ///
    /// ```
    /// # use pegboard_core::entry::ToolEntry;
    /// use serde_json::{Value, json};
    ///
    /// let echo = ToolEntry::from_fn("echo", "Its argument again", |value: Value| async move { Ok(value) })
    ///     .with_input_schema(json!({"type": "object"}));
    /// assert!(echo.output_schema().is_empty());
    /// ```
    pub fn from_fn<A, R, H, F>(name: impl Into<Arc<str>>, description: impl Into<String>, function: H) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        H: Fn(A) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send,
    {
        Self::from_handler(name, description, Arc::new(TypedFunction::new(function)))
    }

    /// Creates a tool with a custom handler.
    pub fn from_handler(
        name: impl Into<Arc<str>>,
        description: impl Into<String>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: Schema::default(),
            output_schema: Schema::default(),
            tags: Vec::new(),
            annotations: ToolAnnotations::default(),
            instructions: None,
            queue: None,
            is_managed: true,
            validates_own_arguments: false,
            cache: None,
            definition: None,
            handler,
        }
    }

    /// Sets the display name.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the input schema.
    #[must_use]
    pub fn with_input_schema(mut self, schema: impl Into<Schema>) -> Self {
        self.input_schema = schema.into();
        self
    }

    /// Sets the output schema.
    #[must_use]
    pub fn with_output_schema(mut self, schema: impl Into<Schema>) -> Self {
        self.output_schema = schema.into();
        self
    }

    /// Sets the annotations.
    #[must_use]
    pub fn with_annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets usage instructions for models.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Sets the queue for calls of this tool.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Marks the tool as an orchestrator of other tools: it occupies no queue slot, is not cached, has no
    /// timeout, and its output is not limited. The calls that it makes are managed individually.
    #[must_use]
    pub fn unmanaged(mut self) -> Self {
        self.is_managed = false;
        self
    }

    /// Marks the tool as validating its arguments itself, so that they are passed on unchecked.
    #[must_use]
    pub fn validating_own_arguments(mut self) -> Self {
        self.validates_own_arguments = true;
        self
    }

    /// Allows caching of results for this time, even if the tool is unmanaged.
    #[must_use]
    pub fn with_cache(mut self, time_to_live: Duration) -> Self {
        self.cache = Some(time_to_live);
        self
    }

    /// Sets the definition as the server wrote it.
    #[must_use]
    pub fn with_definition(mut self, definition: RawJson) -> Self {
        self.definition = Some(definition);
        self
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds tags.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the display name, if there is one.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Returns the description, for people and models.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the schema of the arguments.
    pub fn input_schema(&self) -> &Schema {
        &self.input_schema
    }

    /// Returns the schema of the output.
    pub fn output_schema(&self) -> &Schema {
        &self.output_schema
    }

    /// Returns the tags in insertion order.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Returns the annotations.
    pub fn annotations(&self) -> &ToolAnnotations {
        &self.annotations
    }

    /// Returns usage instructions for models.
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Returns the queue for calls of this tool, if it names one.
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// Returns `true` if queue slots, cache, timeouts and output limits apply to calls.
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Returns the tool's own cache lifetime, if set.
    pub fn cache(&self) -> Option<Duration> {
        self.cache
    }

    /// Returns `true` if the tool validates its arguments itself.
    pub fn validates_own_arguments(&self) -> bool {
        self.validates_own_arguments
    }

    /// Returns the MCP definition of the tool: as the server wrote it, or generated.
    ///
    /// ```
    /// # use pegboard_core::entry::ToolEntry;
    /// let entry = ToolEntry::new("now", "The time", |(): ()| async { Ok(7) }).with_title("Clock");
    /// assert_eq!(entry.definition().get("title").unwrap().as_str(), "\"Clock\"");
    /// ```
    pub fn definition(&self) -> RawJson {
        self.definition.clone().unwrap_or_else(|| {
            RawJson::of(&ListedTool {
                name: &self.name,
                title: self.title.as_deref(),
                description: &self.description,
                input_schema: object_schema(&self.input_schema),
                output_schema: Some(self.output_schema.as_json()).filter(|schema| schema["type"] == "object"),
                annotations: Some(&self.annotations)
                    .filter(|annotations| **annotations != ToolAnnotations::default()),
            })
        })
    }

    /// Returns the handler.
    pub fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    /// Returns the tool as plain data, with the module it belongs to.
    ///
    /// ```
    /// # use pegboard_core::entry::ToolEntry;
    /// let entry = ToolEntry::new("now", "The time", |(): ()| async { Ok(7) }).tag("clock");
    /// let definition = entry.to_tool_definition("tools");
    /// assert_eq!((definition.module.as_str(), definition.tags), ("tools", vec!["clock".to_owned()]));
    /// ```
    pub fn to_tool_definition(&self, module: impl Into<String>) -> ToolDefinition {
        ToolDefinition {
            name: self.name.to_string(),
            description: self.description.clone(),
            module: module.into(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            tags: self.tags.clone(),
        }
    }
}

impl fmt::Debug for ToolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolEntry")
            .field("name", &self.name)
            .field("tags", &self.tags)
            .finish_non_exhaustive()
    }
}

impl Serialize for ToolEntry {
    /// Serializes name, description, schemas and tags, without the handler.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ToolEntry", 5)?;
        fields.serialize_field("name", &*self.name)?;
        fields.serialize_field("description", &self.description)?;
        fields.serialize_field("input_schema", &self.input_schema)?;
        fields.serialize_field("output_schema", &self.output_schema)?;
        fields.serialize_field("tags", &self.tags)?;
        fields.end()
    }
}

/// MCP tool definition.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool<'e> {
    name: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'e str>,
    description: &'e str,
    input_schema: Cow<'e, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'e Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'e ToolAnnotations>,
}

/// Returns a schema with `type: object`, as the protocol requires.
fn object_schema(schema: &Schema) -> Cow<'_, Value> {
    match schema.as_json() {
        json @ Value::Object(members) if members.get("type").is_some_and(|kind| kind == "object") => {
            Cow::Borrowed(json)
        }
        Value::Object(members) if !members.contains_key("type") => {
            let kind = std::iter::once(("type".to_owned(), "object".into()));
            Cow::Owned(kind.chain(members.clone()).collect())
        }
        _ => Cow::Owned(json!({"type": "object"})),
    }
}

/// A tool as plain data, without its handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description of the tool.
    pub description: String,
    /// Module it belongs to.
    pub module: String,
    /// Schema of the arguments.
    #[serde(default)]
    pub input_schema: Schema,
    /// Schema of the output.
    #[serde(default)]
    pub output_schema: Schema,
    /// Search tags.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Behaviour hints of a tool, as in MCP. `None` means unspecified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// Has no side effects.
    #[serde(rename = "readOnlyHint", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// May destroy data.
    #[serde(rename = "destructiveHint", skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Repeating a call with the same arguments has no further effect.
    #[serde(rename = "idempotentHint", skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Interacts with external systems.
    #[serde(rename = "openWorldHint", skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}
