//! Benchmarks of the library, as pairs to be compared within one run.
//!
//! - `validation`: validating a typical call against parsing its arguments.
//! - `lookup`: one name among ten tools and among a hundred thousand; the same with varying names, where CPU
//!   caches show.
//! - `search`: by name and by tag among a hundred thousand.
//! - `chain`: three steps against the same three tools invoked by hand.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pegboard_core::chain::{ChainStep, ToolChain};
use pegboard_core::entry::ToolEntry;
use pegboard_core::registry::{ToolRegistry, ToolSearch};
use pegboard_core::schema::Schema;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

fn validation(criterion: &mut Criterion) {
    let schema = Schema::new(json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["repo", "title", "author"],
        "properties": {
            "repo": {"type": "string", "minLength": 3},
            "title": {"type": "string", "maxLength": 200},
            "body": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
            "priority": {"type": "integer", "minimum": 1, "maximum": 5},
            "state": {"enum": ["open", "closed", "draft"]},
            "draft": {"type": "boolean"},
            "milestone": {"type": ["integer", "null"]},
            "author": {
                "type": "object",
                "required": ["login"],
                "properties": {"login": {"type": "string"}, "id": {"type": "integer"}, "site_admin": {"type": "boolean"}},
            },
            "assignees": {
                "type": "array",
                "items": {"type": "object", "required": ["login"], "properties": {"login": {"type": "string"}}},
            },
        },
    }));
    let text = json!({
        "repo": "acme/rocket",
        "title": "The engine stops at zero",
        "body": "Steps to reproduce: count down to zero and look at the engine. It should start, but it stops.",
        "labels": ["bug", "engine", "urgent"],
        "priority": 4,
        "state": "open",
        "draft": false,
        "milestone": null,
        "author": {"login": "ada", "id": 36, "site_admin": false},
        "assignees": [{"login": "grace"}, {"login": "linus"}],
    })
    .to_string();
    let arguments: Value = serde_json::from_str(&text).expect("the text was just written");
    assert!(schema.check(&arguments).valid, "the benchmark measures a valid call");

    let mut group = criterion.benchmark_group("validation");
    group.bench_function("parse the arguments", |bencher| {
        bencher.iter(|| serde_json::from_str::<Value>(black_box(&text)));
    });
    group.bench_function("check the arguments", |bencher| {
        bencher.iter(|| schema.check(black_box(&arguments)));
    });
    group.finish();
}

fn registry_of(n_tools: usize) -> ToolRegistry {
    let tags = ["math", "text", "io", "net"];
    let entry = |n: usize| {
        no_op(format!("server{}__tool_number_{n}", n % 50)).tag(tags[n % 4]).tag(format!("t{}", n % 1_000))
    };
    ToolRegistry::new().with((0..n_tools).map(entry)).expect("the names differ")
}

fn no_op(name: String) -> ToolEntry {
    ToolEntry::from_fn(name, "", |value: Value| async move { Ok(value) })
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    for n_tools in [10, 100_000] {
        let registry = registry_of(n_tools);
        let names = registry.list_names();
        group.bench_function(format!("one name among {n_tools}"), |bencher| {
            bencher.iter(|| registry.get(black_box(&names[7])));
        });
        let mut turn = 0;
        group.bench_function(format!("names in turn among {n_tools}"), |bencher| {
            bencher.iter(|| {
                turn = (turn + 7_919) % names.len();
                registry.get(black_box(&names[turn]))
            });
        });
    }
    group.finish();
}

fn search(criterion: &mut Criterion) {
    let registry = registry_of(100_000);
    let mut group = criterion.benchmark_group("search among 100000");
    group.bench_function("a rare part of a name", |bencher| {
        let search = ToolSearch::new().name("NUMBER_9999");
        bencher.iter(|| registry.search(black_box(&search)).len());
    });
    group.bench_function("a rare tag", |bencher| {
        let search = ToolSearch::new().any_tags(["t77"]);
        bencher.iter(|| registry.search(black_box(&search)).len());
    });
    group.bench_function("all of two tags and a part of a name", |bencher| {
        let search = ToolSearch::new().name("number_1").all_tags(["math", "t76"]);
        bencher.iter(|| registry.search(black_box(&search)).len());
    });
    group.finish();
}

fn chain(criterion: &mut Criterion) {
    let runtime: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let registry = ToolRegistry::new()
        .with(["first", "second", "third"].map(|name| no_op(name.to_owned())))
        .expect("the names differ");
    let input = json!({"value": 7});
    let mapped = |name: &str| ChainStep::new(name).map("value", "value").output_key("value");
    let chain = ToolChain::new(&registry)
        .add_step(mapped("first"))
        .add_step(mapped("second"))
        .add_step(mapped("third"));

    let mut group = criterion.benchmark_group("chain");
    group.bench_function("three tools by hand", |bencher| {
        bencher.to_async(&runtime).iter_batched(
            || input.clone(),
            |input| async {
                let first = registry.invoke("first", input).await;
                let second = registry.invoke("second", first.data).await;
                registry.invoke("third", second.data).await
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("three steps of a chain", |bencher| {
        bencher.to_async(&runtime).iter_batched(
            || input.clone(),
            |input| chain.execute(input),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, validation, lookup, search, chain);
criterion_main!(benches);
