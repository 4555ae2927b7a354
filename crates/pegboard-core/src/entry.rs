//! One tool: its name, its words, its schemas, its tags and the code behind it.

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
use crate::handler::{Function, Handler};
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
    annotations: Annotations,
    instructions: Option<String>,
    queue: Option<String>,
    is_managed: bool,
    judges_itself: bool,
    cache: Option<Duration>,
    definition: Option<RawJson>,
    handler: Arc<dyn Handler>,
}

impl ToolEntry {
    /// A tool whose schemas are those of the function's argument and answer.
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

    /// A tool whose schemas are still to be given; until then it takes and gives everything.
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
        Self::from_handler(name, description, Arc::new(Function::new(function)))
    }

    /// A tool with a handler written by hand.
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
            annotations: Annotations::default(),
            instructions: None,
            queue: None,
            is_managed: true,
            judges_itself: false,
            cache: None,
            definition: None,
            handler,
        }
    }

    /// The tool under a name for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The tool with another input schema.
    #[must_use]
    pub fn with_input_schema(mut self, schema: impl Into<Schema>) -> Self {
        self.input_schema = schema.into();
        self
    }

    /// The tool with another output schema.
    #[must_use]
    pub fn with_output_schema(mut self, schema: impl Into<Schema>) -> Self {
        self.output_schema = schema.into();
        self
    }

    /// The tool with other annotations.
    #[must_use]
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// The tool with words for a model about how to use it.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// The tool with a queue that its calls go through.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// The tool as one that does its work by calling other tools: it holds no slot, is not cached, has no time-out
    /// and its answer is handed over whole. The calls that it makes are managed, each by itself.
    #[must_use]
    pub fn unmanaged(mut self) -> Self {
        self.is_managed = false;
        self
    }

    /// The tool as one that says in its own words what is wrong with its arguments, so that they reach it unchecked.
    #[must_use]
    pub fn judging_itself(mut self) -> Self {
        self.judges_itself = true;
        self
    }

    /// The tool as one whose answers may be given again for some time, also if it is unmanaged.
    #[must_use]
    pub fn with_cache(mut self, time_to_live: Duration) -> Self {
        self.cache = Some(time_to_live);
        self
    }

    /// The tool with its definition as a server wrote it.
    #[must_use]
    pub fn with_definition(mut self, definition: RawJson) -> Self {
        self.definition = Some(definition);
        self
    }

    /// The tool with one more tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// The tool with more tags.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// The name it is called by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name for people, if it has one.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// What it does, for people and models.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What its arguments must look like.
    pub fn input_schema(&self) -> &Schema {
        &self.input_schema
    }

    /// What its answer looks like.
    pub fn output_schema(&self) -> &Schema {
        &self.output_schema
    }

    /// Its tags, in the order they were given.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// What it says of its own effects.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// Words for a model about how to use it.
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// The queue that its calls go through, if it names one.
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// Whether slots, the cache, time-outs and caps apply to its calls.
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// How long its answers may be given again, if it says so itself.
    pub fn cache(&self) -> Option<Duration> {
        self.cache
    }

    /// Whether it says in its own words what is wrong with its arguments.
    pub fn judges_itself(&self) -> bool {
        self.judges_itself
    }

    /// The tool as a server's list has it: what a server wrote, or the same made here.
    ///
    /// ```
    /// # use pegboard_core::entry::ToolEntry;
    /// let entry = ToolEntry::new("now", "The time", |(): ()| async { Ok(7) }).with_title("Clock");
    /// assert_eq!(entry.definition().get("title").unwrap().as_str(), "\"Clock\"");
    /// ```
    pub fn definition(&self) -> RawJson {
        self.definition.clone().unwrap_or_else(|| {
            RawJson::of(&Listed {
                name: &self.name,
                title: self.title.as_deref(),
                description: &self.description,
                input_schema: object_schema(&self.input_schema),
                output_schema: Some(self.output_schema.as_json()).filter(|schema| schema["type"] == "object"),
                annotations: Some(&self.annotations)
                    .filter(|annotations| **annotations != Annotations::default()),
            })
        })
    }

    /// The code behind it.
    pub fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    /// The tool as plain data that names the module it belongs to.
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
    /// Name, description, schemas and tags; the handler stays at home.
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

/// A tool as the lists of the protocol have it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'e> {
    name: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'e str>,
    description: &'e str,
    input_schema: Cow<'e, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'e Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'e Annotations>,
}

/// The schema, which in a list must be one of an object.
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

/// A tool as plain data, without the code behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The name it is called by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Where it comes from.
    pub module: String,
    /// What its arguments must look like.
    #[serde(default)]
    pub input_schema: Schema,
    /// What its answer looks like.
    #[serde(default)]
    pub output_schema: Schema,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// What a tool says of its own effects, in the protocol's words. `None` leaves it open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// It changes nothing.
    #[serde(rename = "readOnlyHint", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What it changes may be lost.
    #[serde(rename = "destructiveHint", skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Calling it again with the same arguments changes nothing more.
    #[serde(rename = "idempotentHint", skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It reaches things beyond this program.
    #[serde(rename = "openWorldHint", skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}
