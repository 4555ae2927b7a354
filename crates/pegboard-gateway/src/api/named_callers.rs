//! Callers that several API requests share by session name.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::owner::Owner;
use pegboard_runtime::Caller;
use tokio::time::Instant;

use super::problem::ApiProblem;

/// Maximum number of callers; beyond it the least recently used one is evicted.
const MAX_CALLERS: usize = 200;
/// Idle time after which a caller is dropped.
const MAX_IDLE: Duration = Duration::from_hours(1);
/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Callers by owner and name.
#[derive(Default)]
pub(super) struct NamedCallers(Mutex<HashMap<(Owner, String), NamedCaller>>);

struct NamedCaller {
    caller: Caller,
    used: Instant,
}

impl NamedCallers {
    /// Returns the caller with this name; creates one if there is none or it has expired.
    pub(super) fn get_or_create(
        &self,
        owner: &Owner,
        name: &str,
        new: impl FnOnce() -> Caller,
    ) -> Result<Caller, ApiProblem> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let problem = format!("session must be a name of 1 to {MAX_NAME_BYTES} bytes");
            return Err(ApiProblem::bad_request(problem).at("$.session"));
        }
        let now = Instant::now();
        let key = (owner.clone(), name.to_owned());
        let (caller, evicted) = {
            let mut callers = self.0.lock();
            let is_expired = |entry: &NamedCaller| now.duration_since(entry.used) > MAX_IDLE;
            let mut evicted: Vec<NamedCaller> =
                callers.extract_if(|_, entry| is_expired(entry)).map(|(_, entry)| entry).collect();
            if !callers.contains_key(&key) && callers.len() >= MAX_CALLERS {
                let oldest = callers.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
                evicted.extend(oldest.and_then(|oldest| callers.remove(&oldest)));
            }
            let entry = callers.entry(key).or_insert_with(|| NamedCaller { caller: new(), used: now });
            entry.used = now;
            (entry.caller.clone(), evicted)
        };
        // Outside the lock: this may drop the last handle.
        drop(evicted);
        Ok(caller)
    }
}
