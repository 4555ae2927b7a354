//! Takes the place of the exporter in builds without the feature `otel`.

use std::convert::Infallible;

use tracing_subscriber::Registry;
use tracing_subscriber::layer::Layer;

use super::{Error, ResourceInfo};

pub(super) use UnavailableExporter as Exporter;
pub(super) use pegboard_runtime::spans::PassthroughPropagator as TraceLinker;

/// An exporter, of which there is none.
pub(super) struct UnavailableExporter(Infallible);

impl UnavailableExporter {
    pub(super) fn new(_endpoint: &str, own: ResourceInfo) -> Result<Self, Error> {
        let ResourceInfo { service_name: _, labels: _, ratio: _ } = own;
        Err(Error::Endpoint { reason: "this program was built without the feature otel".to_owned() })
    }

    pub(super) fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        match self.0 {}
    }
}
