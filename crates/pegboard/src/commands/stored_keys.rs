//! Moves keys in plain text from an edited file to the user's secrets.

use clap::Args;
use pegboard::config::{ConfigDialect, ConfigFile};
use pegboard::secret::Secret;
use pegboard_auth::secret_storage::{SecretName, SecretStorage};

use super::config_file::display_path;
use super::secret::failure;
use crate::cli::format::plural;
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, Globals, notice, print};
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
    /// Moves the keys that an edit adds to the user's secrets; they are removed again unless the file is written. Keys
    /// that cannot be stored stay in the file, with a warning. A dry run stores nothing.
    pub(crate) fn apply(
        self,
        globals: &Globals,
        file: &mut ConfigFile<'_>,
        is_dry_run: bool,
    ) -> Result<NewSecrets, CliError> {
        let mut new = NewSecrets::default();
        if file.dialect != ConfigDialect::Native {
            return Ok(new);
        }
        let mut found: Vec<(Vec<String>, Secret)> = Vec::new();
        file.replace_added_keys(&mut |path, key| {
            found.push((path.to_vec(), Secret::new(key)));
            None
        })?;
        if found.is_empty() || !(self.store_keys || is_wanted(globals, file, &found, is_dry_run)) {
            return Ok(new);
        }
        let storage = new.storage.insert(open_storage(globals.state.as_deref())?);
        let mut chosen: Vec<ChosenName> = Vec::new();
        for (path, key) in found {
            if let Err(error) = SecretStorage::check(&key) {
                print::error_line(&format!("warning: {} stays in the file: {error}", path.join(".")));
                continue;
            }
            let (name, is_stored) = unused_name(storage, &chosen, &path, &key)?;
            if !is_dry_run && !is_stored {
                storage.set(&name, &key).map_err(failure)?;
                new.names.push(name.clone());
            }
            chosen.push(ChosenName { path, key, name });
        }
        file.replace_added_keys(&mut |path, key| {
            let ChosenName { name, .. } =
                chosen.iter().find(|chosen| chosen.path == path && chosen.key.reveal() == key)?;
            Some(format!("${{keyring:{name}}}"))
        })?;
        Ok(new)
    }
}

/// A key of the file, and the name under which it is stored.
struct ChosenName {
    path: Vec<String>,
    key: Secret,
    name: SecretName,
}

/// Secrets that were stored for a file that is yet to be written. Dropping removes them.
#[derive(Default)]
#[must_use = "the secrets are removed otherwise"]
pub(crate) struct NewSecrets {
    storage: Option<SecretStorage>,
    names: Vec<SecretName>,
}

impl NewSecrets {
    /// Keeps the secrets: the file refers to them. Says which ones they are.
    pub(crate) fn keep(mut self, globals: &Globals) {
        let names = std::mem::take(&mut self.names);
        if !names.is_empty() {
            let listed = names.iter().map(SecretName::as_str).collect::<Vec<_>>().join(", ");
            let secrets = plural(names.len() as u64, "secret");
            notice(globals, &format!("Stored {secrets}: {listed}; see pegboard secret ls"));
        }
    }
}

impl Drop for NewSecrets {
    fn drop(&mut self) {
        for name in &self.names {
            // The command has failed already, and says why.
            let _ = self.storage.as_ref().map(|storage| storage.remove(name));
        }
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

/// Returns a name for a key that no other secret has: `github/GITHUB_TOKEN`, and whether the key is stored already.
fn unused_name(
    storage: &SecretStorage,
    chosen: &[ChosenName],
    path: &[String],
    key: &Secret,
) -> Result<(SecretName, bool), CliError> {
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
        // In a dry run the names that were chosen are not stored.
        if chosen.iter().any(|chosen| chosen.name == name && chosen.key != *key) {
            continue;
        }
        match storage.get(&name).map_err(failure)? {
            Some(other) if other != *key => {}
            stored => return Ok((name, stored.is_some())),
        }
    }
    Err(CliError::usage(format!("there are already {MAX_NAMES} secrets named {wanted}"))
        .hint("remove some with pegboard secret rm"))
}
