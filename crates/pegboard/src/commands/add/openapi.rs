//! `pegboard add openapi`: a web service with an OpenAPI document.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Spot, headers, put};
use crate::cli::{Failure, Globals};
use crate::commands::own_file::{OwnFile, Section, from_file};

/// The service.
#[derive(Args)]
pub(super) struct Openapi {
    /// What it is called: letters, digits, - and _
    name: String,
    /// The document: a file, or an address that begins with http:// or https://
    #[arg(value_name = "FILE-OR-URL")]
    spec: String,
    /// Let operations be tools that have this tag, and no others
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<String>,
    /// Let operations be tools that have this method, and no others
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    method: Vec<String>,
    /// Where the service is, whatever the document says
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A header of every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Add it switched off
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    spot: Spot,
}

impl Openapi {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let file = OwnFile::open(globals, self.spot.target)?;
        let spec = from_file(&file.path, &self.spec)?;
        let mut entry = Map::from_iter([("spec".to_owned(), json!(spec))]);
        if let Some(address) = &self.base_url {
            entry.insert("baseUrl".to_owned(), json!(address));
        }
        if !self.tag.is_empty() {
            entry.insert("tagFilter".to_owned(), json!(self.tag));
        }
        if !self.method.is_empty() {
            let methods: Vec<String> = self.method.iter().map(|method| method.to_lowercase()).collect();
            entry.insert("includeMethods".to_owned(), json!(methods));
        }
        let headers = headers(&self.header)?;
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        if self.disabled {
            entry.insert("enabled".to_owned(), json!(false));
        }
        put(globals, &self.spot, Section::Services, &self.name, &Value::Object(entry))
    }
}
