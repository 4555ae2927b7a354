//! Imports OpenAPI documents and verifies the result: every operation is a tool with valid schemas, or is
//! skipped for a reason.
//!
//! `cargo run --release --example openapi_corpus -- FILE…` prints one line per document with its import time.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::{OpenApiImport, import};
use serde_json::{Value, json};

const METHODS: [&str; 9] = ["get", "post", "put", "patch", "delete", "query", "head", "options", "trace"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (mut n_documents, mut n_tools, mut n_skipped, mut n_wrong) = (0, 0, 0, 0);
    for file in std::env::args().skip(1) {
        let settings = OpenApiSettings {
            spec: file.clone(),
            // Many documents have placeholder server URLs.
            base_url: Some("https://api.example.org".to_owned()),
            include_methods: Some(METHODS.map(str::to_owned).to_vec()),
            ..OpenApiSettings::default()
        };
        let began = Instant::now();
        let import = match import(&settings, Path::new("")).await {
            Ok(import) => import,
            Err(why) => {
                println!("{file}: WRONG: {why}");
                n_wrong += 1;
                continue;
            }
        };
        let took = began.elapsed();
        let mut problems = problems(&import);
        let n_read = import.tools.len() + import.skipped.len();
        if let Some(n_written) = n_operations(&file).filter(|n_written| *n_written != n_read) {
            problems.push(format!("the document has {n_written} operations, but {n_read} were found"));
        }
        println!(
            "{file}: {} tools, {} skipped, {} warnings, {} ms",
            import.tools.len(),
            import.skipped.len(),
            import.warnings.len(),
            took.as_millis()
        );
        for skipped in &import.skipped {
            println!("    {}: {}", skipped.operation, skipped.reason);
        }
        for problem in &problems {
            println!("    WRONG: {problem}");
        }
        n_documents += 1;
        n_tools += import.tools.len();
        n_skipped += import.skipped.len();
        n_wrong += problems.len();
    }
    if n_documents == 0 {
        println!("WRONG: no documents given");
        n_wrong += 1;
    }
    println!("{n_documents} documents, {n_tools} tools, {n_skipped} operations skipped, {n_wrong} wrong");
    if n_wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts the operations of a JSON document without the importer.
fn n_operations(file: &str) -> Option<usize> {
    let document: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let items = document["paths"].as_object().into_iter().flatten();
    let items = items.filter(|(path, _)| !path.starts_with("x-")).map(|(_, item)| item);
    let items: Vec<&Value> = items.collect();
    // References are not followed.
    if items.iter().any(|item| item.get("$ref").is_some()) {
        return None;
    }
    Some(items.iter().map(|item| METHODS.iter().filter(|method| item[**method].is_object()).count()).sum())
}

/// Returns the problems of a document's tools.
fn problems(import: &OpenApiImport) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = std::collections::HashSet::new();
    for tool in &import.tools {
        let entry = &tool.entry;
        for (which, schema) in [("arguments", entry.input_schema()), ("output", entry.output_schema())] {
            if let Some(problem) = schema.problem() {
                problems.push(format!("{}: the schema of its {which}: {problem}", tool.operation));
            }
        }
        // A string must be rejected, or the schema validates nothing.
        if entry.input_schema().accepts(&json!("no object")) {
            problems.push(format!("{}: its input schema accepts anything", tool.operation));
        }
        if !names.insert(entry.name().to_owned()) {
            problems.push(format!("{}: duplicate tool name", tool.operation));
        }
    }
    problems
}
