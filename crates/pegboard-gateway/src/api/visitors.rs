//! Callers that requests come back to by name.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pegboard_runtime::Caller;
use tokio::time::Instant;

use super::problem::Problem;

/// How many are kept; beyond it the one that was not used for longest goes.
const MAX_VISITORS: usize = 200;
/// How long one is kept that nobody comes back to.
const MAX_IDLE: Duration = Duration::from_hours(1);
/// How long a name may be, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Callers that requests come back to by name, each within its principal.
#[derive(Default)]
pub(super) struct Visitors(Mutex<HashMap<(String, String), Visitor>>);

struct Visitor {
    caller: Caller,
    used: Instant,
}

impl Visitors {
    /// The caller of a name; a new one if there is none, or none any more.
    pub(super) fn get(
        &self,
        principal: &str,
        name: &str,
        new: impl FnOnce() -> Caller,
    ) -> Result<Caller, Problem> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let problem = format!("session must be a name of 1 to {MAX_NAME_BYTES} bytes");
            return Err(Problem::bad_request(problem).at("$.session"));
        }
        let now = Instant::now();
        let key = (principal.to_owned(), name.to_owned());
        let (caller, gone) = {
            let mut visitors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_left = |visitor: &Visitor| now.duration_since(visitor.used) > MAX_IDLE;
            let mut gone: Vec<Visitor> =
                visitors.extract_if(|_, visitor| is_left(visitor)).map(|(_, visitor)| visitor).collect();
            if !visitors.contains_key(&key) && visitors.len() >= MAX_VISITORS {
                let oldest =
                    visitors.iter().min_by_key(|(_, visitor)| visitor.used).map(|(key, _)| key.clone());
                gone.extend(oldest.and_then(|oldest| visitors.remove(&oldest)));
            }
            let visitor = visitors.entry(key).or_insert_with(|| Visitor { caller: new(), used: now });
            visitor.used = now;
            (visitor.caller.clone(), gone)
        };
        // Outside the lock: this may be the last who holds them.
        drop(gone);
        Ok(caller)
    }
}
