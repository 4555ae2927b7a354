//! The schemas of an agent's header, inline or in separate files.

use std::path::Path;
use std::slice::from_ref;

use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{AgentInputSettings, AgentOutputSettings, InputFormat, ReportFormat};
use serde_json::Value as Json;

use super::header::{HeaderInputFormat, InputHeader, OutputHeader};
use super::prompt::resolve_inside;
use crate::path::KeyPath;
use crate::problem::{ConfigProblem, Severity};
use crate::read::ConfigReader;
use crate::source::{ConfigFormat, SourceText};
use crate::tree::{self, Node};

/// Reads the schemas of a header.
pub(super) struct SchemaReader<'s, 'r> {
    pub(super) reader: &'s mut ConfigReader<'r>,
    pub(super) root: &'s Node,
    /// Directory of the agent file.
    pub(super) folder: &'s Path,
    /// Directory that schema files must be inside of.
    pub(super) project: &'s Path,
}

impl SchemaReader<'_, '_> {
    /// Returns the input settings of the agent.
    pub(super) fn input(&mut self, input: &InputHeader) -> AgentInputSettings {
        let schema = self.read("input", input.schema.as_ref(), input.schema_ref.as_deref());
        let format = match input.format {
            HeaderInputFormat::Text => InputFormat::Text,
            HeaderInputFormat::Json => InputFormat::Json,
        };
        let is_there = input.schema.is_some() || input.schema_ref.is_some();
        match format {
            InputFormat::Text if is_there => self.report_unused("input"),
            InputFormat::Json if !is_there => {
                let message = "JSON input requires a schema".to_owned();
                self.report(
                    "input",
                    "format",
                    message,
                    "add schema or schemaRef, or set format: text".to_owned(),
                );
            }
            InputFormat::Text | InputFormat::Json => {}
        }
        AgentInputSettings { format, schema }
    }

    /// Returns the output settings of the agent.
    pub(super) fn output(&mut self, output: &OutputHeader) -> AgentOutputSettings {
        let schema = self.read("output", output.schema.as_ref(), output.schema_ref.as_deref());
        if output.format != Some(ReportFormat::Json)
            && (output.schema.is_some() || output.schema_ref.is_some())
        {
            self.report_unused("output");
        }
        AgentOutputSettings { format: output.format, schema }
    }

    fn read(&mut self, section: &str, schema: Option<&Json>, file: Option<&str>) -> Option<Json> {
        let key = if file.is_some() { "schemaRef" } else { "schema" };
        if let Some(file) = file {
            self.reader.watch(self.folder.join(file));
        }
        let read = match (schema, file) {
            (None, None) => return None,
            (Some(schema), None) => Ok(schema.clone()),
            (None, Some(file)) => self.open(file),
            (Some(_), Some(_)) => Err((
                "schema and schemaRef are mutually exclusive".to_owned(),
                "remove one of them".to_owned(),
            )),
        };
        let read = read.and_then(|schema| {
            let known = Schema::new(schema.clone());
            let help = "a schema is an object such as {type: object, properties: {…}}".to_owned();
            match known.problem() {
                Some(problem) => Err((format!("invalid JSON Schema: {problem}"), help)),
                None if !schema.is_object() => Err(("invalid JSON Schema".to_owned(), help)),
                None => Ok(schema),
            }
        });
        match read {
            Ok(schema) => Some(schema),
            Err((message, help)) => {
                self.report(section, key, message, help);
                None
            }
        }
    }

    fn report_unused(&mut self, section: &str) {
        let has_file = self.root.get(section).is_some_and(|found| found.get("schemaRef").is_some());
        let key = if has_file { "schemaRef" } else { "schema" };
        let help = "set format: json, or remove the schema".to_owned();
        self.report(section, key, "a schema requires format: json".to_owned(), help);
    }

    fn open(&self, file: &str) -> Result<Json, (String, String)> {
        let wrong = |message: String| (message, "use another file, or fix this one".to_owned());
        let path = resolve_inside(self.project, self.folder, file)?;
        let mut text = SourceText::read(&path).map_err(|error| wrong(error.to_string()))?;
        text.path = self.folder.join(file);
        let format = ConfigFormat::of(&path, &text.body);
        let placed = |problem: ConfigProblem| {
            wrong(format!("{file}:{}:{}: {}", problem.line, problem.column, problem.message))
        };
        let parsed = tree::parse(&text.body, format).map_err(|error| {
            placed(text.problem(Severity::Error, (error.span, String::new()), error.message, error.help))
        })?;
        let parsed = parsed.ok_or_else(|| wrong(format!("'{file}' is empty")))?;
        let mut reader = ConfigReader::new(from_ref(&text), &|_| None, &parsed.root, &parsed.duplicates);
        let schema = reader.read::<Json>(&parsed.root, &KeyPath::default(), &[]);
        let first = reader.finish().file_problems.into_iter().next();
        match (schema, first) {
            (Some(schema), None) => Ok(schema),
            (_, Some(problem)) => Err(placed(problem)),
            (None, None) => Err(wrong(format!("'{file}' is not a schema"))),
        }
    }

    fn report(&mut self, section: &str, key: &str, message: String, help: String) {
        let found = self.root.get(section).unwrap_or(self.root);
        let span = found.get(key).unwrap_or(found).span;
        self.reader.error(span, &KeyPath::default().key(section).key(key), message, Some(help));
    }
}
