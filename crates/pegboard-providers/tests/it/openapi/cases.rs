//! Reference cases for importing.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::entry::ToolAnnotations;
use pegboard_core::provider::{Provider, ToolKind};
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::OpenApiProvider;
use pegboard_runtime::{CallerOptions, Runtime};
use serde_json::{Value, json};

use crate::openapi::harness::{Service, call, names};

/// Returns the same catalogue in OpenAPI 3.0 and 2.0.
fn catalogs(url: &str) -> [Value; 2] {
    let parameter = json!({"name": "item-id", "in": "path", "required": true, "schema": {"type": "string"}});
    let limit = json!({"name": "limit", "in": "query", "schema": {"type": "integer"}});
    let new = json!({
        "openapi": "3.0.3",
        "info": {"title": "Catalog", "version": "1"},
        "servers": [{"url": format!("{url}/v1")}],
        "paths": {
            "/items": {
                "get": {"operationId": "listItems", "summary": "All items", "tags": ["items"], "parameters": [{"$ref": "#/components/parameters/limit"}]},
                "post": {
                    "operationId": "addItem",
                    "tags": ["items", "edit"],
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}},
                },
            },
            "/items/{item-id}": {
                "parameters": [parameter, {"name": "lang", "in": "query", "schema": {"type": "string"}, "description": "of the path"}],
                "get": {"parameters": [{"name": "lang", "in": "query", "required": true, "schema": {"enum": ["de", "en"]}}, {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}]},
                "delete": {"operationId": "listItems"},
            },
        },
        "components": {
            "parameters": {"limit": limit},
            "schemas": {"Item": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"$ref": "#/components/schemas/Size"}}}, "Size": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}},
        },
    });
    let host = url.strip_prefix("http://").unwrap();
    let old = json!({
        "swagger": "2.0",
        "info": {"title": "Catalog", "version": "1"},
        "host": host, "basePath": "/v1", "schemes": ["http"],
        "paths": {
            "/items": {
                "get": {"operationId": "listItems", "summary": "All items", "tags": ["items"], "parameters": [{"$ref": "#/parameters/limit"}]},
                "post": {
                    "operationId": "addItem",
                    "tags": ["items", "edit"],
                    "parameters": [{"name": "item", "in": "body", "required": true, "schema": {"$ref": "#/definitions/Item"}}],
                },
            },
            "/items/{item-id}": {
                "parameters": [{"name": "item-id", "in": "path", "required": true, "type": "string"}, {"name": "lang", "in": "query", "type": "string"}],
                "get": {"parameters": [{"name": "lang", "in": "query", "required": true, "type": "string", "enum": ["de", "en"]}, {"name": "X-Trace", "in": "header", "type": "string"}]},
                "delete": {"operationId": "listItems"},
            },
        },
        "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer"}},
        "definitions": new["components"]["schemas"].as_object().unwrap().iter().map(|(name, schema)| {
            (name.clone(), serde_json::from_str(&schema.to_string().replace("components/schemas", "definitions")).unwrap())
        }).collect::<serde_json::Map<_, _>>(),
    });
    [new, old]
}

// C51, C58
#[tokio::test]
async fn a_tool_is_found_by_its_full_short_and_single_underscore_name() {
    let service = Service::start().await;
    for document in catalogs(&service.url) {
        service.write("spec.json", &document.to_string());
        let settings = OpenApiSettings {
            spec: "spec.json".to_owned(),
            base_url: Some(format!("{}/v1", service.url)),
            ..OpenApiSettings::default()
        };
        let provider = OpenApiProvider::new(settings, service.folder.path());
        assert_eq!(provider.kind(), ToolKind::Rest);
        provider.open().await.unwrap();
        let runtime = Runtime::builder().provide("catalog", provider).start().await.unwrap();
        let caller = runtime.caller(CallerOptions::default());
        for name in ["catalog__listItems", "catalog_listItems", "listItems"] {
            let ended = caller.start(Call::new(name, json!({"limit": 3}))).await;
            assert_eq!(ended.result.unwrap().text(), r#"{"ok":true}"#);
            assert_eq!(service.take_requests()[0].line, "GET /v1/items?limit=3");
        }
        let ended = caller.start(Call::new("catalog_listItems_2", json!({"item-id": "7"}))).await;
        assert!(ended.result.is_ok());
        assert_eq!(service.take_requests()[0].line, "DELETE /v1/items/7");
        runtime.shut_down(Duration::ZERO).await;
    }
}

// C58
#[tokio::test]
async fn services_with_colliding_tool_names_are_both_available() {
    let service = Service::start().await;
    let mut builder = Runtime::builder();
    for (server, id, path) in [("a", "b_c", "/one"), ("a_b", "c", "/two")] {
        service.write(
            &format!("{server}.json"),
            &service.document("get", path, &json!({"operationId": id})).to_string(),
        );
        let settings = OpenApiSettings {
            spec: format!("{server}.json"),
            base_url: Some(format!("{}/v1", service.url)),
            ..OpenApiSettings::default()
        };
        let provider = OpenApiProvider::new(settings, service.folder.path());
        provider.open().await.unwrap();
        builder = builder.provide(server, provider);
    }
    let runtime = builder.start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    for (name, line) in [("a__b_c", "/one"), ("a_b__c", "/two"), ("a_b_c", "/two")] {
        caller.start(Call::new(name, json!({}))).await.result.unwrap();
        assert_eq!(service.take_requests()[0].line, format!("GET /v1{line}"), "{name}");
    }
    runtime.shut_down(Duration::ZERO).await;
}

// C52, C58
#[tokio::test]
async fn operations_without_id_are_named_by_method_and_path_and_duplicates_are_numbered() {
    let service = Service::start().await;
    for document in catalogs(&service.url) {
        let import = service.import(&document, json!({})).await;
        assert_eq!(
            names(&import),
            ["listItems", "addItem", "get_items_item-id".replace('-', "_").as_str(), "listItems_2"]
        );
        assert_eq!(import.tools[2].operation, "GET /items/{item-id}");
        assert_eq!(import.tools[0].entry.description(), "All items");
        assert_eq!(import.tools[1].entry.description(), "addItem");
        assert_eq!(import.tools[2].entry.description(), "GET /items/{item-id}");
        let deleting = ToolAnnotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(true),
            open_world: Some(true),
        };
        assert_eq!(*import.tools[3].entry.annotations(), deleting);
        assert_eq!(import.tools[0].entry.annotations().read_only, Some(true));
    }
}

// C53
#[tokio::test]
async fn a_query_parameter_is_sent() {
    let service = Service::start().await;
    for document in catalogs(&service.url) {
        let import = service.import(&document, json!({})).await;
        for (arguments, line) in [
            (json!({"limit": 5}), "GET /v1/items?limit=5"),
            (json!({"limit": 0}), "GET /v1/items?limit=0"),
            (json!({}), "GET /v1/items"),
        ] {
            call(&import, 0, arguments).await.unwrap();
            assert_eq!(service.take_requests()[0].line, line);
        }
        assert!(call(&import, 0, json!({"limit": "many"})).await.is_err());
        assert!(call(&import, 0, json!({"limti": 5})).await.is_err());
        assert!(service.take_requests().is_empty());
    }
}

// C54, C56
#[tokio::test]
async fn path_and_operation_parameters_are_merged() {
    let service = Service::start().await;
    for document in catalogs(&service.url) {
        let import = service.import(&document, json!({"headers": {"X-Key": "k"}})).await;
        let schema = import.tools[2].entry.input_schema().as_json();
        let properties: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(properties, ["item-id", "lang", "X-Trace"]);
        assert_eq!(schema["required"], json!(["item-id", "lang"]));
        assert_eq!(schema["properties"]["lang"]["enum"], json!(["de", "en"]));
        call(&import, 2, json!({"item-id": "a/b c", "lang": "de", "X-Trace": "mine"})).await.unwrap();
        let seen = service.take_requests();
        assert_eq!(seen[0].line, "GET /v1/items/a%2Fb%20c?lang=de");
        assert_eq!((seen[0].header("x-trace"), seen[0].header("x-key")), (Some("mine"), Some("k")));
    }
}

// C55
#[tokio::test]
async fn filters_select_operations_and_give_reasons() {
    let service = Service::start().await;
    let [document, _] = catalogs(&service.url);
    let cases = [
        (
            json!({"includeMethods": ["GET"]}),
            vec!["listItems", "get_items_item_id"],
            "its method is not in includeMethods",
        ),
        (json!({"tagFilter": "Edit"}), vec!["addItem"], "none of its tags is in tagFilter"),
        (json!({"include": ["list*"]}), vec!["listItems", "listItems_2"], "it does not match include"),
        (json!({"exclude": ["list*", "GET_items*"]}), vec!["addItem"], "it matches exclude"),
        (
            json!({"rename": {"addItem": "add one", "get_items_item_id": "show"}, "exclude": ["listItems"]}),
            vec!["add_one", "show"],
            "it matches exclude",
        ),
    ];
    for (settings, expected, reason) in cases {
        let import = service.import(&document, settings.clone()).await;
        assert_eq!(names(&import), expected, "{settings}");
        assert_eq!(import.tools.len() + import.skipped.len(), 4);
        assert!(
            import.skipped.iter().all(|skipped| skipped.reason == reason && skipped.is_excluded),
            "{:?}",
            import.skipped
        );
    }
}

// C57
#[tokio::test]
async fn the_body_schema_is_kept() {
    let service = Service::start().await;
    for document in catalogs(&service.url) {
        let import = service.import(&document, json!({})).await;
        let schema = import.tools[1].entry.input_schema().as_json();
        assert_eq!(
            *schema,
            json!({
                "type": "object",
                "properties": {"body": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "exclusiveMinimum": 0}},
                }},
                "required": ["body"],
                "additionalProperties": false,
            })
        );
        assert!(call(&import, 1, json!({"body": {"size": 1}})).await.is_err());
        assert!(call(&import, 1, json!({"body": {"name": "a", "size": 0}})).await.is_err());
        assert!(service.take_requests().is_empty());
        call(&import, 1, json!({"body": {"name": "a", "size": 1}})).await.unwrap();
        let seen = service.take_requests().pop().unwrap();
        assert_eq!(
            (seen.line.as_str(), seen.header("content-type")),
            ("POST /v1/items", Some("application/json"))
        );
        assert_eq!(seen.text(), r#"{"name":"a","size":1}"#);
    }
}
