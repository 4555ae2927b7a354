//! The user's logins at servers, in the state directory.

use std::path::Path;
use std::sync::Arc;

use pegboard::wiring::DATABASE;
use pegboard::wiring::logins::Logins;
use pegboard_auth::secret_storage::SecretStorage;

use crate::cli::{CliError, Globals};
use crate::paths;
use crate::secrets::open_storage;

/// Opens the logins; creates the state directory if it does not exist.
pub(crate) async fn open(globals: &Globals) -> Result<Arc<Logins>, CliError> {
    let folder = paths::state_dir(globals.state.as_deref())
        .ok_or_else(|| CliError::system("no state directory for logins").hint("set one with --state"))?;
    let logins = Logins::open(&folder, Arc::new(open_storage(Some(&folder))?));
    match logins.problem().await {
        None => Ok(Arc::new(logins)),
        Some(why) => Err(CliError::system(format!("cannot open the stored logins: {why}"))
            .hint("set another state directory with --state, or run as the owner of this one")),
    }
}

/// Opens the logins, if there is a state file: for commands that keep their own state elsewhere.
pub(crate) fn existing(globals: &Globals) -> Option<Arc<Logins>> {
    let folder =
        paths::state_dir(globals.state.as_deref()).filter(|folder| folder.join(DATABASE).exists())?;
    Some(Arc::new(Logins::open(&folder, Arc::new(open_storage(Some(&folder)).ok()?))))
}

/// Returns the secrets with the key of the logins in a state directory.
pub(crate) fn key_storage(state: Option<&Path>) -> Result<Option<Arc<SecretStorage>>, CliError> {
    state.map(|folder| open_storage(Some(folder)).map(Arc::new)).transpose()
}
