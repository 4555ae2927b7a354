//! Moves keys in plain text from an edited file to the user's secrets.

use std::collections::BTreeMap;

use clap::Args;
use pegboard::config::{ConfigDialect, ConfigFile};
use pegboard::secret::Secret;
use pegboard_auth::secret_storage::{SecretName, SecretStorage};

use super::config_file::display_path;
use super::secret::failure;
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, Globals};
use crate::secrets::open_storage;

/// Maximum number of names tried for a key.
const MAX_NAMES: usize = 100;

/// Decides about keys in plain text.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct StoredKeys {
    /// Store plaintext keys as secrets, and refer to them with ${keyring:NAME}
    #[arg(long)]
    store_keys: bool,
}

impl StoredKeys {
    /// Moves the keys that an edit adds to the user's secrets. A dry run stores nothing.
    pub(crate) fn apply(
        self,
        globals: &Globals,
        file: &mut ConfigFile<'_>,
        is_dry_run: bool,
    ) -> Result<(), CliError> {
        if file.dialect != ConfigDialect::Native {
            return Ok(());
        }
        let mut found: Vec<(Vec<String>, Secret)> = Vec::new();
        file.replace_added_keys(&mut |path, key| {
            found.push((path.to_vec(), Secret::new(key)));
            None
        })?;
        if found.is_empty() || !(self.store_keys || is_wanted(globals, file, &found, is_dry_run)) {
            return Ok(());
        }
        let storage = open_storage(globals.state.as_deref())?;
        let mut names: BTreeMap<Vec<String>, Vec<(Secret, SecretName)>> = BTreeMap::new();
        for (path, key) in found {
            let name = unused_name(&storage, &path, &key)?;
            if !is_dry_run {
                storage.set(&name, &key).map_err(failure)?;
            }
            names.entry(path).or_default().push((key, name));
        }
        Ok(file.replace_added_keys(&mut |path, key| {
            let (_, name) = names.get(path)?.iter().find(|(known, _)| known.reveal() == key)?;
            Some(format!("${{keyring:{name}}}"))
        })?)
    }
}

/// Asks on a terminal; `false` without one.
fn is_wanted(
    globals: &Globals,
    file: &ConfigFile<'_>,
    found: &[(Vec<String>, Secret)],
    is_dry_run: bool,
) -> bool {
    let Some(mut terminal) = Terminal::detect().filter(|_| !globals.no_input && !is_dry_run) else {
        return false;
    };
    let places: Vec<String> = found.iter().map(|(path, _)| path.join(".")).collect();
    terminal.print(&format!("Keys in plain text: {}", places.join(", ")));
    let question =
        format!("Store them as secrets instead of writing them to {}? [Y/n] ", display_path(&file.path));
    let answer = terminal.read_line(&question, Echo::Shown).unwrap_or_else(|| "n".to_owned());
    matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes")
}

/// Returns a name for a key that no other secret has: `github/GITHUB_TOKEN`.
fn unused_name(storage: &SecretStorage, path: &[String], key: &Secret) -> Result<SecretName, CliError> {
    let setting = path.last().map_or("key", String::as_str);
    let nesting = ["env", "environment", "headers", "credentials"];
    let owner = path.iter().rev().skip(1).find(|key| !nesting.contains(&key.as_str()));
    let plain = |text: &str| -> String {
        text.chars()
            .map(|each| if each.is_ascii_alphanumeric() || "_-.".contains(each) { each } else { '-' })
            .collect()
    };
    let wanted = format!("{}/{}", plain(owner.map_or("pegboard", String::as_str)), plain(setting));
    for number in 1..=MAX_NAMES {
        let name = if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") };
        let name = super::secret::secret_name(&name)?;
        match storage.get(&name).map_err(failure)? {
            Some(other) if other != *key => {}
            Some(_) | None => return Ok(name),
        }
    }
    Err(CliError::usage(format!("there are already {MAX_NAMES} secrets named {wanted}"))
        .hint("remove some with pegboard secret rm"))
}
