//! The schemas of an agent's header: where they are, or in files of their own.

use std::path::Path;
use std::slice::from_ref;

use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{InputFormat, InputSettings, ReportFormat, ReportSettings};
use serde_json::Value as Json;

use super::header::{Asked, Input, Output};
use super::prompt::within;
use crate::path::Path as Way;
use crate::problem::{Problem, Severity};
use crate::read::Reader;
use crate::source::{Format, Text};
use crate::tree::{self, Node};

/// Reads the schemas of a header.
pub(super) struct Schemas<'s, 'r> {
    pub(super) reader: &'s mut Reader<'r>,
    pub(super) root: &'s Node,
    /// Where the agent is.
    pub(super) folder: &'s Path,
    /// What no file may be outside of.
    pub(super) project: &'s Path,
}

impl Schemas<'_, '_> {
    /// What the agent is asked with.
    pub(super) fn input(&mut self, input: &Input) -> InputSettings {
        let schema = self.read("input", input.schema.as_ref(), input.schema_ref.as_deref());
        let format = match input.format {
            Asked::Text => InputFormat::Text,
            Asked::Json => InputFormat::Json,
        };
        let is_there = input.schema.is_some() || input.schema_ref.is_some();
        match format {
            InputFormat::Text if is_there => self.tell_useless("input"),
            InputFormat::Json if !is_there => {
                let message = "nobody could know what to ask with: the schema is missing".to_owned();
                self.tell(
                    "input",
                    "format",
                    message,
                    "add schema or schemaRef, or write format: text".to_owned(),
                );
            }
            InputFormat::Text | InputFormat::Json => {}
        }
        InputSettings { format, schema }
    }

    /// What the agent answers with.
    pub(super) fn output(&mut self, output: &Output) -> ReportSettings {
        let schema = self.read("output", output.schema.as_ref(), output.schema_ref.as_deref());
        if output.format != Some(ReportFormat::Json)
            && (output.schema.is_some() || output.schema_ref.is_some())
        {
            self.tell_useless("output");
        }
        ReportSettings { format: output.format, schema }
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
            (Some(_), Some(_)) => {
                Err(("the schema is here twice".to_owned(), "take one of them away".to_owned()))
            }
        };
        let read = read.and_then(|schema| {
            let known = Schema::new(schema.clone());
            let help = "a schema is an object such as {type: object, properties: {…}}".to_owned();
            match known.problem() {
                Some(problem) => Err((format!("this is no JSON Schema: {problem}"), help)),
                None if !schema.is_object() => Err(("this is no JSON Schema".to_owned(), help)),
                None => Ok(schema),
            }
        });
        match read {
            Ok(schema) => Some(schema),
            Err((message, help)) => {
                self.tell(section, key, message, help);
                None
            }
        }
    }

    fn tell_useless(&mut self, section: &str) {
        let has_file = self.root.get(section).is_some_and(|found| found.get("schemaRef").is_some());
        let key = if has_file { "schemaRef" } else { "schema" };
        let help = "write format: json, or take the schema away".to_owned();
        self.tell(section, key, "a schema is of use for JSON only".to_owned(), help);
    }

    fn open(&self, file: &str) -> Result<Json, (String, String)> {
        let wrong = |message: String| (message, "name another file, or correct this one".to_owned());
        let path = within(self.project, self.folder, file)?;
        let mut text = Text::read(&path).map_err(|error| wrong(error.to_string()))?;
        text.path = self.folder.join(file);
        let format = Format::of(&path, &text.body);
        let placed = |problem: Problem| {
            wrong(format!("{file}:{}:{}: {}", problem.line, problem.column, problem.message))
        };
        let parsed = tree::parse(&text.body, format).map_err(|error| {
            placed(text.problem(Severity::Error, (error.span, String::new()), error.message, error.help))
        })?;
        let parsed = parsed.ok_or_else(|| wrong(format!("'{file}' is empty")))?;
        let mut reader = Reader::new(from_ref(&text), &|_| None, &parsed.root, &parsed.twins);
        let schema = reader.read::<Json>(&parsed.root, &Way::default(), &[]);
        let first = reader.finish().of_file.into_iter().next();
        match (schema, first) {
            (Some(schema), None) => Ok(schema),
            (_, Some(problem)) => Err(placed(problem)),
            (None, None) => Err(wrong(format!("'{file}' is no schema"))),
        }
    }

    fn tell(&mut self, section: &str, key: &str, message: String, help: String) {
        let found = self.root.get(section).unwrap_or(self.root);
        let span = found.get(key).unwrap_or(found).span;
        self.reader.error(span, &Way::default().key(section).key(key), message, Some(help));
    }
}
