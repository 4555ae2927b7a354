//! `pegboard export` and `pegboard connect`: what a client needs to know to use us.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::Format as Notation;
use pegboard::config::clients::Client;
use pegboard::config::edit::{self, Document};
use pegboard::telemetry::tell;
use serde_json::{Value, json};

use super::backups::Backups;
use super::client_file::{ClientFile, OWN_NAME, Scope, known, own_arguments, own_program, way_to};
use super::own_file::{free_name, refused, shown};
use crate::cli::{Failure, Format, Globals, print, remark};
use crate::place::Wanted;

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
    /// Give it the servers of the configuration themselves, as it would have them without us
    #[arg(long, conflicts_with = "http")]
    expand: bool,
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
        let entries = if self.expand {
            expanded(globals, client)?
        } else {
            vec![ClientEntry::plain(OWN_NAME, self.entry.value(globals, client)?)]
        };
        if self.write || self.entry.dry_run {
            return self.entry.write(globals, client, &entries);
        }
        let path = match client.format() {
            Notation::Json => "it.json",
            Notation::Yaml => "it.yaml",
            Notation::Toml => "it.toml",
        };
        let mut document = Document::new(Path::new(path), String::new())?;
        for entry in &entries {
            document.set(&way_to(client, &document, &entry.name), &entry.shown).map_err(refused)?;
        }
        let whole = document.value().clone();
        print::document(globals.format_or(Format::Text), &whole, || document.text());
        if entries.iter().any(|entry| entry.shown != entry.value) {
            remark(globals, "Keys are blotted out here; --write writes them");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An entry of a client's file.
struct ClientEntry {
    name: String,
    value: Value,
    /// The same, without what nobody should see.
    shown: Value,
}

impl ClientEntry {
    /// One in which there is nothing to hide.
    fn plain(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), shown: value.clone(), value }
    }
}

/// The servers of the configuration in the words of a client. What it cannot be told is told to whoever asks.
fn expanded(globals: &Globals, client: &Client) -> Result<Vec<ClientEntry>, Failure> {
    let survey = Wanted::of(globals)?.survey()?;
    let mut entries: Vec<ClientEntry> = Vec::new();
    let mut left_out = 0;
    for part in survey.parts.iter().filter(|part| !part.is_off) {
        let of_toolbox = part.toolbox.as_ref().map(|toolbox| format!("{toolbox}-{}", part.name));
        let is_free = |name: &str| entries.iter().all(|entry| entry.name != name);
        let name = free_name(&part.name, of_toolbox, is_free);
        let made = match part.section {
            "mcpServers" => client
                .entry(&name, &part.value)
                .and_then(|value| Ok(ClientEntry { shown: client.entry(&name, &part.masked)?, name, value })),
            _ => Err("only Pegboard can do what it does".to_owned()),
        };
        match made {
            Ok(entry) => entries.push(entry),
            Err(why) => {
                left_out += 1;
                tell(&format!("{} is left out: {why}", part.name));
            }
        }
    }
    if entries.is_empty() {
        let message = match left_out {
            0 => "the configuration has no servers",
            _ => "no server of the configuration can be given to this client",
        };
        return Err(Failure::not_found("unknown_server", message));
    }
    Ok(entries)
}

impl Connect {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = known(&self.client)?;
        let entry = ClientEntry::plain(OWN_NAME, self.entry.value(globals, client)?);
        self.entry.write(globals, client, &[entry])
    }
}

impl Entry {
    /// What the client is to know.
    fn value(&self, globals: &Globals, client: &Client) -> Result<Value, Failure> {
        own_entry(globals, client, None, self.http.as_deref())
    }

    fn write(
        &self,
        globals: &Globals,
        client: &Client,
        entries: &[ClientEntry],
    ) -> Result<ExitCode, Failure> {
        let path = self.scope.path(client)?;
        let mut file = ClientFile::open(client, &path)?;
        for entry in entries {
            let way = way_to(client, &file.document, &entry.name);
            if entry.name != OWN_NAME && file.document.get(&way).is_some_and(|there| *there != entry.value) {
                remark(globals, &format!("{} is replaced in {}", entry.name, shown(&path)));
            }
            file.document.set(&way, &entry.value).map_err(refused)?;
        }
        if entries.iter().all(|entry| entry.name != OWN_NAME) {
            // Who has the servers themselves would find each of them twice.
            file.document.remove(&way_to(client, &file.document, OWN_NAME)).map_err(refused)?;
        }
        let (old, new) = (file.old.as_deref(), file.document.text());
        let is_there = old == Some(new.as_str());
        let diff = edit::diff(Path::new(&shown(&path)), old.unwrap_or_default(), &new);
        let is_written = !is_there && !self.dry_run;
        if is_written {
            Backups::to_change(globals)?.write(client.name(), &path, old, &new)?;
        }
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = if names == [OWN_NAME] { String::new() } else { format!(" ({})", names.join(", ")) };
        let mut document = json!({"client": client.name(), "file": path, "changed": is_written});
        match entries {
            [only] => document["entry"] = only.shown.clone(),
            several => {
                let shown = several.iter().map(|entry| (entry.name.clone(), entry.shown.clone()));
                document["entries"] = Value::Object(shown.collect());
            }
        }
        if self.dry_run {
            document["diff"] = json!(diff);
        }
        print::document(globals.format_or(Format::Text), &document, || match (is_there, self.dry_run) {
            (true, _) => format!("{} is connected already: {}", client.title(), shown(&path)),
            (false, true) => diff,
            (false, false) => format!("Connected {}: {}{names}", client.title(), shown(&path)),
        });
        if is_written && globals.format_or(Format::Text) == Format::Text {
            remark(globals, &format!("To undo it: pegboard restore {}", client.name()));
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
