//! `pegboard export` and `pegboard connect`: what a client needs to know to use us.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::Format as Notation;
use pegboard::config::clients::Client;
use pegboard::config::edit::{self, Document};
use serde_json::{Value, json};

use super::backups::Backups;
use super::client_file::{ClientFile, OWN_NAME, Scope, known, own_arguments, own_program, way_to};
use super::own_file::{refused, shown};
use crate::cli::{Failure, Format, Globals, print};

/// Where `serve` waits for clients if nobody says otherwise.
pub(super) const USUAL_URL: &str = "http://127.0.0.1:7332/mcp";

/// For which client, and where to.
#[derive(Args)]
pub(crate) struct Export {
    /// The client: claude-code, cursor, vscode, codex, …
    #[arg(long, value_name = "CLIENT")]
    to: String,
    /// Write it into the client's file, and do not only print it
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    entry: Entry,
}

/// The same, written into the client's file.
#[derive(Args)]
pub(crate) struct Connect {
    /// The client: claude-code, cursor, vscode, codex, …
    client: String,
    #[command(flatten)]
    entry: Entry,
}

#[derive(Args)]
struct Entry {
    /// Have the client come to this address, instead of starting a program
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = USUAL_URL)]
    http: Option<String>,
    /// Show what would change in the client's file, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    scope: Scope,
}

impl Export {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = known(&self.to)?;
        if self.write || self.entry.dry_run {
            return self.entry.write(globals, client);
        }
        let value = self.entry.value(globals, client)?;
        let path = match client.format() {
            Notation::Json => "it.json",
            Notation::Yaml => "it.yaml",
            Notation::Toml => "it.toml",
        };
        let mut document = Document::new(Path::new(path), String::new())?;
        document.set(&way_to(client, &document, OWN_NAME), &value).map_err(refused)?;
        let whole = document.value().clone();
        print::document(globals.format_or(Format::Text), &whole, || document.text());
        Ok(ExitCode::SUCCESS)
    }
}

impl Connect {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        self.entry.write(globals, known(&self.client)?)
    }
}

impl Entry {
    /// What the client is to know.
    fn value(&self, globals: &Globals, client: &Client) -> Result<Value, Failure> {
        own_entry(globals, client, None, self.http.as_deref())
    }

    fn write(&self, globals: &Globals, client: &Client) -> Result<ExitCode, Failure> {
        let path = self.scope.path(client)?;
        let mut file = ClientFile::open(client, &path)?;
        let way = way_to(client, &file.document, OWN_NAME);
        let value = self.value(globals, client)?;
        let is_there = file.document.get(&way) == Some(&value);
        file.document.set(&way, &value).map_err(refused)?;
        let (old, new) = (file.old.as_deref(), file.document.text());
        let diff = edit::diff(Path::new(&shown(&path)), old.unwrap_or_default(), &new);
        let is_written = !is_there && !self.dry_run;
        if is_written {
            Backups::open(globals)?.write(client.name(), &path, old, &new)?;
        }
        let mut document =
            json!({"client": client.name(), "file": path, "changed": is_written, "entry": value});
        if self.dry_run {
            document["diff"] = json!(diff);
        }
        print::document(globals.format_or(Format::Text), &document, || match (is_there, self.dry_run) {
            (true, _) => format!("{} is connected already: {}", client.title(), shown(&path)),
            (false, true) => diff,
            (false, false) => format!("Connected {}: {}", client.title(), shown(&path)),
        });
        if is_written && !globals.quiet && document_is_text(globals) {
            pegboard::telemetry::tell(&format!("To undo it: pegboard restore {}", client.name()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What a client has in its file to use us: an address, or the program, which serves a file of ours or else what it would
/// find here.
pub(super) fn own_entry(
    globals: &Globals,
    client: &Client,
    file: Option<&Path>,
    url: Option<&str>,
) -> Result<Value, Failure> {
    match url {
        None => Ok(client.entry_for_program(OWN_NAME, &own_program()?, &own_arguments(globals, file)?)),
        Some(url) => client.entry_for_url(OWN_NAME, url).ok_or_else(|| {
            Failure::usage(format!("{} does not go to addresses that are in its file", client.title()))
                .hint("leave out --http, and it starts a program instead")
        }),
    }
}

fn document_is_text(globals: &Globals) -> bool {
    globals.format_or(Format::Text) == Format::Text
}
