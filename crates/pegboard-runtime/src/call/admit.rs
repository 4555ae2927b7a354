//! Admission of a call: resolves references to stored outputs and validates the arguments.

use std::sync::Arc;

use pegboard_core::call::{Call, CallOrigin, SchemaChecks, ValidCall};
use pegboard_core::error::{CallError, Executed, ToolError};
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::ValidatedBy;
use pegboard_core::validation::Violation;

use super::active::ActiveCall;
use crate::catalogue::CatalogueTool;
use crate::costly_validation::ValidationFailure;
use crate::event::CallInfo;
use crate::queues::QueueMap;
use crate::runtime::RuntimeShared;

/// An admitted call on its way through the pipeline layers.
pub(crate) struct AdmittedCall {
    pub(crate) active_call: Arc<ActiveCall>,
    pub(crate) tool: Arc<CatalogueTool>,
    pub(crate) call: ValidCall,
    pub(crate) checks: SchemaChecks,
    /// The queues at the time the tool was resolved.
    pub(crate) queues: Arc<QueueMap>,
}

impl AdmittedCall {
    pub(crate) fn shared(&self) -> &RuntimeShared {
        self.active_call.caller().shared()
    }

    pub(crate) fn info(&self) -> Arc<CallInfo> {
        self.active_call.recorder.info()
    }
}

/// Validates the arguments and admits the call.
pub(super) async fn admit(
    active_call: &Arc<ActiveCall>,
    tool: Arc<CatalogueTool>,
    queues: Arc<QueueMap>,
    call: Call,
) -> Result<AdmittedCall, CallError> {
    let Call { mut arguments, mut context, checks, .. } = call;
    let outputs = &active_call.caller().shared().outputs;
    if outputs.may_refer(&arguments) {
        arguments = Box::pin(outputs.resolve_references(active_call.caller(), arguments)).await?;
    }
    let for_all = active_call.caller().shared().settings().validate_arguments;
    let validated_by = tool.policy.judge.unwrap_or(match (tool.kind, context.origin, for_all) {
        _ if tool.entry.validates_own_arguments() => ValidatedBy::Server,
        (ToolKind::Mcp | ToolKind::Rest, _, Some(validator)) => validator,
        (ToolKind::Mcp, CallOrigin::Client, None) => ValidatedBy::Server,
        _ => ValidatedBy::Pegboard,
    });
    let input_checks = match validated_by {
        ValidatedBy::Server => {
            if !arguments.is_object() {
                let text = "$: the arguments of a tool must be a JSON object";
                let violations = vec![Violation::new(text.to_owned(), text)];
                return Err(CallError::InvalidParameters { violations });
            }
            SchemaChecks::None
        }
        ValidatedBy::Pegboard => checks,
    };
    context.client = active_call.as_client();
    context.trace_parent = active_call.recorder.trace_parent();
    context.tools = Some(Arc::clone(active_call) as _);
    let is_costly =
        input_checks != SchemaChecks::None && tool.entry.input_schema().is_costly(arguments.value());
    let entry = Arc::clone(&tool.entry);
    let call = if is_costly {
        let RuntimeShared { validation_threads: threads, tasks, .. } = &**active_call.caller().shared();
        let admit = move || ValidCall::admit(entry, arguments, context, input_checks);
        // Boxed, so that the future of every other call stays small.
        let admitted = Box::pin(threads.run(tasks, active_call.caller().owner(), admit)).await;
        admitted.map_err(not_validated)??
    } else {
        ValidCall::admit(entry, arguments, context, input_checks)?
    };
    active_call.recorder.add_warnings(call.warnings().iter().cloned());
    Ok(AdmittedCall { active_call: Arc::clone(active_call), tool, call, checks, queues })
}

/// Returns the error of a call of which the arguments could not be validated.
pub(crate) fn not_validated(failure: ValidationFailure) -> CallError {
    let reason = format!("the arguments are costly to validate, and {failure}");
    match failure {
        ValidationFailure::Crowded => {
            CallError::LimitExceeded { reason: format!("{reason}; try again later") }
        }
        ValidationFailure::Panicked => CallError::Failed(ToolError::new(reason)),
        ValidationFailure::ShuttingDown => CallError::Canceled { reason, executed: Executed::No },
    }
}
