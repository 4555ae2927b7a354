//! `pegboard secret`: secrets that the configuration refers to with `${keyring:NAME}`.

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pegboard::secret::Secret;
use pegboard_auth::secret_storage::{SecretName, SecretPlace, SecretStorageError};
use serde_json::json;

use crate::cli::arguments::read_text;
use crate::cli::format::columns;
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, Globals, OutputFormat, print};
use crate::secrets::open_storage;

/// Maximum size of a value on standard input.
const MAX_BYTES: u64 = 1024 * 1024;

/// Arguments of `pegboard secret`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  pegboard secret set github\n  gh auth token | pegboard secret set github\n  pegboard add github https://api.example.com/mcp -H 'Authorization: Bearer ${keyring:github}'"
)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

#[derive(Subcommand)]
enum SecretCommand {
    /// Store a secret, from a prompt or standard input
    Set {
        /// Name of the secret
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the names of the secrets, and where they are
    Ls,
    /// Remove secrets
    Rm {
        /// Names of the secrets
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

impl SecretArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        match self.command {
            SecretCommand::Set { name } => set(globals, &name),
            SecretCommand::Ls => list(globals),
            SecretCommand::Rm { names } => remove(globals, &names),
        }
    }
}

fn set(globals: &Globals, name: &str) -> Result<ExitCode, CliError> {
    let name = secret_name(name)?;
    let storage = open_storage(globals.state.as_deref())?;
    let value = read_value(&name)?;
    if value.reveal().is_empty() {
        return Err(
            CliError::usage("the value is empty").hint(format!("pegboard secret rm {name} removes a secret"))
        );
    }
    let place = storage.set(&name, &value).map_err(failure)?;
    let document = json!({"name": name.as_str(), "place": place_name(place)});
    print::document(globals.format_or(OutputFormat::Text), &document, || {
        let place = match place {
            SecretPlace::Keyring => "in the keyring".to_owned(),
            SecretPlace::File => {
                format!("encrypted in {}: there is no keyring", storage.index_path().display())
            }
        };
        format!("Stored {name} {place}\nRefer to it with ${{keyring:{name}}}")
    });
    Ok(ExitCode::SUCCESS)
}

/// Reads a value from a prompt without echo, or from standard input.
fn read_value(name: &SecretName) -> Result<Secret, CliError> {
    let Some(mut terminal) = Terminal::detect() else {
        let text = read_text(io::stdin(), "standard input", MAX_BYTES)?;
        return Ok(Secret::new(text.trim_end_matches(['\r', '\n'])));
    };
    let line = terminal.read_line(&format!("Value of {name} (not shown): "), Echo::Hidden);
    line.map(Secret::new).ok_or_else(|| {
        CliError::usage("no value was entered")
            .hint(format!("use standard input: pegboard secret set {name} < FILE"))
    })
}

fn list(globals: &Globals) -> Result<ExitCode, CliError> {
    let secrets = open_storage(globals.state.as_deref())?.list().map_err(failure)?;
    let document =
        secrets.iter().map(|(name, place)| json!({"name": name.as_str(), "place": place_name(*place)}));
    let document = json!({"secrets": document.collect::<Vec<_>>()});
    let rows = || {
        let row =
            |(name, place): &(SecretName, SecretPlace)| vec![name.to_string(), place_name(*place).to_owned()];
        columns(&secrets.iter().map(row).collect::<Vec<_>>())
    };
    print::listing(
        globals,
        &document,
        "secrets",
        |_| rows(),
        "no secrets; store one with pegboard secret set NAME",
    );
    Ok(ExitCode::SUCCESS)
}

fn remove(globals: &Globals, names: &[String]) -> Result<ExitCode, CliError> {
    let names = names.iter().map(|name| secret_name(name)).collect::<Result<Vec<_>, _>>()?;
    let storage = open_storage(globals.state.as_deref())?;
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for name in &names {
        match storage.remove(name).map_err(failure) {
            Ok(true) => removed.push(name.as_str()),
            Ok(false) => {
                let missing = CliError::not_found("not_found", format!("there is no secret '{name}'"));
                failures.push(missing.hint("list the secrets with pegboard secret ls"));
            }
            Err(failure) => failures.push(failure),
        }
    }
    print::document(globals.format_or(OutputFormat::Text), &json!({"removed": removed}), || {
        removed.iter().map(|name| format!("Removed {name}")).collect::<Vec<_>>().join("\n")
    });
    CliError::report_all(failures, globals)
}

pub(crate) fn secret_name(name: &str) -> Result<SecretName, CliError> {
    SecretName::new(name).map_err(|invalid| CliError::usage(invalid.to_string()))
}

fn place_name(place: SecretPlace) -> &'static str {
    match place {
        SecretPlace::Keyring => "keyring",
        SecretPlace::File => "file",
    }
}

pub(crate) fn failure(error: SecretStorageError) -> CliError {
    match error {
        short @ (SecretStorageError::TooShort { .. }
        | SecretStorageError::TooLong
        | SecretStorageError::TooMany) => CliError::usage(short.to_string()),
        error @ (SecretStorageError::Keyring(_)
        | SecretStorageError::File(_)
        | SecretStorageError::Unreadable { .. }
        | SecretStorageError::Damaged { .. }
        | SecretStorageError::TooManyDamaged { .. }
        | SecretStorageError::DamagedKey) => CliError::system(error.to_string()),
    }
}
