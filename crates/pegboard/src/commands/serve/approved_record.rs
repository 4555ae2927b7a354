//! Record of what the gateway of a configuration is approved to run, for the next one.

use std::path::{Path, PathBuf};

use pegboard::config::edit::WriteError;
use pegboard::config::trust::{ApprovalRecord, ApprovedConfiguration};
use pegboard::telemetry::write_stderr;

use crate::cli::CliError;
use crate::paths;
use crate::trust::TrustGate;

/// Directory in the state directory.
const FOLDER: &str = "approved";

/// File with the digests of what the gateway of a configuration is approved to run. Only the process with the lock of
/// the configuration writes it.
#[derive(Clone, Debug)]
pub(crate) struct ApprovedRecord(PathBuf);

impl ApprovedRecord {
    /// Record of a configuration.
    pub(crate) fn new(state: &Path, identity: &str) -> Self {
        Self(state.join(FOLDER).join(format!("{identity}.json")))
    }

    /// Reads what was approved; `None` if there is no record. One that cannot be used approves nothing.
    pub(crate) fn read(&self) -> Option<ApprovedConfiguration> {
        let record = ApprovalRecord::read(&self.0, paths::file_owner());
        let record = record.unwrap_or_else(|error| {
            let path = self.0.display();
            write_stderr(&format!("warning: nothing is approved: cannot read {path}: {error}"));
            Some(ApprovalRecord::default())
        });
        record.map(ApprovedConfiguration::recorded)
    }

    /// Records what is approved.
    pub(crate) fn write(&self, approved: &ApprovedConfiguration, gate: &TrustGate) -> Result<(), WriteError> {
        let store = gate.store().unwrap_or_default();
        approved.record(&|action| store.is_trusted(action)).write(&self.0)
    }

    /// Forgets what was accepted for one use.
    pub(crate) fn forget_single_use(&self) -> Result<(), CliError> {
        let unusable = |error: String| {
            CliError::system(format!("cannot use {}: {error}", self.0.display()))
                .hint("remove it, then try again")
        };
        let record = ApprovalRecord::read(&self.0, paths::file_owner());
        let Some(mut record) = record.map_err(|error| unusable(error.to_string()))? else { return Ok(()) };
        if record.forget_single_use() {
            record.write(&self.0).map_err(|error| unusable(error.to_string()))?;
        }
        Ok(())
    }
}
