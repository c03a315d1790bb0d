"""The verbs over the store: what HTTP, the controllers and the tests all call.

Synchronous and single-threaded: a verb reads, decides and stores without an await in between, so
optimistic concurrency is exact. Time, uids and random suffixes are passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import (
    admission,
    crds,
    deletion,
    errors,
    isolation,
    names,
    patches,
    scale,
    ssa,
    structural,
)
from gantry_local.apiserver.admission import CRD_KEY, Options
from gantry_local.apiserver.catalogue import Catalogue
from gantry_local.apiserver.kinds import builtin_types
from gantry_local.apiserver.lists import Lists
from gantry_local.apiserver.store import Record, Store
from gantry_local.apiserver.validation import invalid as invalid_cause

if TYPE_CHECKING:
    from gantry_local.apiserver.addresses import AddressPool
    from gantry_local.apiserver.ambient import Ambient
    from gantry_local.apiserver.deletion import DeleteOptions
    from gantry_local.apiserver.kinds import ResourceType

Object = dict[str, Any]
SERVICES = ("", "services")
NAMESPACES = ("", "namespaces")


class Written:
    """A stored (or, dry, unstored) result with the warnings for its writer."""

    __slots__ = ("created", "deleted", "record", "warnings")

    def __init__(
        self,
        record: Record,
        *,
        created: bool = False,
        deleted: bool = False,
        warnings: list[str] | None = None,
    ) -> None:
        self.record = record
        self.created = created
        self.deleted = deleted
        self.warnings = warnings or []


class Registry:
    """All resource types and the verbs over them."""

    def __init__(self, store: Store, ambient: Ambient, service_ips: AddressPool) -> None:
        self.store = store
        self.lists = Lists(store)
        self._ambient = ambient
        self._service_ips = service_ips
        self.catalogue = Catalogue(builtin_types())
        for record in store.records(CRD_KEY):
            self.catalogue.register(crds.resource_type(record.obj))
        for record in store.records(SERVICES):
            self._service_ips.claim(record.obj["spec"].get("clusterIP", ""))

    def get(self, resource: ResourceType, namespace: str, name: str) -> Record:
        """The current record; 404 otherwise."""
        record = self.store.get(resource.key, (namespace if resource.namespaced else "", name))
        if record is None:
            raise errors.not_found(resource, name)
        return record

    def create(
        self, resource: ResourceType, namespace: str, body: Object, options: Options
    ) -> Written:
        """POST."""
        obj = patches.clone(body)
        admission.check_identity(resource, namespace, "", obj)
        if obj["metadata"].get("resourceVersion"):
            raise errors.internal("resourceVersion should not be set on objects to be created")
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = names.generate(metadata["generateName"], self._ambient.suffix)
        warnings = admission.prune(resource, obj, options)
        manager = ssa.Writer(options.manager, "Update", resource.api_version)
        return self._insert(resource, namespace, obj, options, warnings, manager)

    def _insert(
        self,
        resource: ResourceType,
        namespace: str,
        obj: Object,
        options: Options,
        warnings: list[str],
        writer: ssa.Writer | None,
    ) -> Written:
        """Store a new object; ``writer`` None means its ownership is already recorded."""
        self._require_namespace(resource, namespace, obj)
        metadata = obj["metadata"]
        for field in isolation.SERVER_OWNED:
            metadata.pop(field, None)
        metadata["uid"] = self._ambient.uid()
        metadata["creationTimestamp"] = self._ambient.now_text()
        if resource.generation:
            metadata["generation"] = 1
        if resource.status:
            obj.pop("status", None)
        admission.complete(resource, obj, None, self._ambient.now_text())
        admission.validate_object(resource, obj, None)
        key = (namespace if resource.namespaced else "", metadata["name"])
        if self.store.get(resource.key, key) is not None:
            raise errors.already_exists(resource, metadata["name"])
        if writer is not None:
            status = obj.pop("status", None) if resource.status else None
            now = self._ambient.now_text()
            obj = ssa.track({}, obj, resource.schema, writer=writer, now=now)
            if status is not None:
                obj["status"] = status  # the server's, not the writer's
        if resource.key == SERVICES:
            self._assign_service_ip(resource, obj, dry_run=options.dry_run)
        if options.dry_run:
            return Written(Record(resource.key, key, obj, 0), created=True, warnings=warnings)
        record = self.store.put(resource.key, key, obj)
        if resource.key == CRD_KEY:
            self.catalogue.register(crds.resource_type(record.obj))
        return Written(record, created=True, warnings=warnings)

    def update(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        body: Object,
        options: Options,
        *,
        subresource: str = "",
    ) -> Written:
        """PUT of the object or of its status."""
        obj = patches.clone(body)
        admission.check_identity(resource, namespace, name, obj)
        key = (namespace if resource.namespaced else "", name)
        old = self.store.get(resource.key, key)
        if old is None:
            if resource.create_on_update and not subresource:
                return self.create(resource, namespace, body, options)
            raise errors.not_found(resource, name)
        if not obj["metadata"].get("resourceVersion") and not resource.unconditional_update:
            why = "must be specified for an update"
            cause = invalid_cause("metadata.resourceVersion", 0, why)
            raise errors.invalid(resource, name, [cause])
        warnings = admission.prune(resource, obj, options)
        return self._replace(resource, old, obj, options, warnings, subresource)

    def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        content_type: str,
        patch: Any,
        options: Options,
        *,
        subresource: str = "",
    ) -> Written:
        """PATCH other than apply."""
        old = self.get(resource, namespace, name)
        match content_type:
            case "application/merge-patch+json":
                obj = patches.merge_patch(old.obj, patch)
            case "application/json-patch+json":
                obj = patches.json_patch(old.obj, patch)
            case "application/strategic-merge-patch+json" if not resource.custom:
                obj = patches.strategic_patch(old.obj, patch, resource.schema)
            case _:
                accepted = ["application/json-patch+json", "application/merge-patch+json"]
                raise errors.unsupported_media(content_type, accepted)
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
            raise errors.bad_request("the patch does not leave an object")
        obj = patches.clone(obj)
        admission.check_identity(resource, namespace, name, obj)
        warnings = admission.prune(resource, obj, options)
        return self._replace(resource, old, obj, options, warnings, subresource)

    def apply(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        config: Object,
        options: Options,
        *,
        subresource: str = "",
    ) -> Written:
        """Server-side apply to the object or its status; creates what does not exist."""
        config = patches.clone(config)
        admission.check_identity(resource, namespace, name, config)
        if config["metadata"].get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        self._check_typed(resource, config)
        config = isolation.appliable(resource, config, subresource)
        old = self.store.get(resource.key, (namespace if resource.namespaced else "", name))
        if old is None and (subresource or config["metadata"].get("uid")):
            raise errors.not_found(resource, name)
        writer = ssa.Writer(options.manager, "Apply", resource.api_version, subresource)
        live = {} if old is None else old.obj
        if old is not None:
            self._check_versions(resource, old, config)
            for field in isolation.SERVER_OWNED:
                config["metadata"].pop(field, None)
        merged = ssa.apply(
            live,
            config,
            resource.schema,
            writer=writer,
            force=options.force,
            now=self._ambient.now_text(),
        )
        if merged is live and old is not None:
            return Written(old)
        merged = patches.clone(merged)
        _forget_nulls(resource, merged)
        if old is None:
            return self._insert(resource, namespace, merged, options, [], None)
        return self._replace(resource, old, merged, options, [], subresource, tracked=True)

    def _check_typed(self, resource: ResourceType, config: Object) -> None:
        dropped = admission.prune(resource, config, Options(field_validation="Warn"))
        if dropped:
            path = dropped[0].split('"')[1]
            meta = config["metadata"]
            raise errors.StatusError(
                500,
                "",
                f"failed to create typed patch object ({meta.get('namespace', '')}/{meta['name']}; "
                f"{resource.api_version}, Kind={resource.kind}): .{path}: field not declared in "
                "schema",
            )

    def _replace(
        self,
        resource: ResourceType,
        old: Record,
        obj: Object,
        options: Options,
        warnings: list[str],
        subresource: str,
        *,
        tracked: bool = False,
    ) -> Written:
        """Store a new state of an existing object, with everything a change entails."""
        self._check_versions(resource, old, obj)
        # A private copy: what isolation takes from the stored object must not change in place.
        obj = patches.clone(isolation.isolate(resource, old.obj, obj, subresource))
        metadata = obj["metadata"]
        for field in isolation.SERVER_OWNED:
            metadata.pop(field, None)
            if field in old.obj["metadata"]:
                metadata[field] = old.obj["metadata"][field]
        now = self._ambient.now_text()
        if subresource == "status" and not resource.custom:
            admission.admit_status(resource, obj)
        else:
            admission.complete(resource, obj, old.obj, now)
            admission.validate_object(resource, obj, old.obj)
        if resource.generation and admission.spec_changed(resource, old.obj, obj):
            metadata["generation"] = old.obj["metadata"].get("generation", 0) + 1
        if not tracked:
            writer = ssa.Writer(options.manager, "Update", resource.api_version, subresource)
            obj = ssa.track(old.obj, obj, resource.schema, writer=writer, now=now)
        if ssa.same_but_times(obj, old.obj):
            return Written(old, warnings=warnings)
        if options.dry_run:
            return Written(Record(resource.key, old.key, obj, old.revision), warnings=warnings)
        if isolation.may_go(obj):  # nobody sees it without its last finalizer
            return Written(self._remove(resource, old), deleted=True, warnings=warnings)
        record = self.store.put(resource.key, old.key, obj)
        if resource.key == CRD_KEY:
            self.catalogue.register(crds.resource_type(record.obj))
        return Written(record, warnings=warnings)

    def _check_versions(self, resource: ResourceType, old: Record, obj: Object) -> None:
        metadata = obj["metadata"]
        asked = metadata.get("resourceVersion")
        if asked and asked != old.obj["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, old.key[1])
        uid = metadata.get("uid")
        if uid and uid != old.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
            raise errors.conflict(resource, old.key[1], why)

    def delete(
        self, resource: ResourceType, namespace: str, name: str, options: DeleteOptions
    ) -> Written:
        """DELETE; ``deleted`` tells whether it is gone or only marked."""
        old = self.get(resource, namespace, name)
        deletion.check_preconditions(resource, old.obj, options)
        grace = deletion.grace_s(resource, old.obj, options)
        finalizers = deletion.finalizers_for(old.obj, options)
        if resource.key == NAMESPACES and name in {"default", "kube-system"}:
            raise errors.forbidden(resource, name, "this namespace may not be deleted")
        if options.dry_run:
            return Written(old, deleted=not finalizers and not grace)
        obj = deletion.mark(
            old.obj, finalizers, grace=grace, deletion_time=self._ambient.later_text(grace)
        )
        if resource.key == NAMESPACES:
            obj = {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
        elif not finalizers and not grace:
            return Written(self._remove(resource, old), deleted=True)
        record = old if obj == old.obj else self.store.put(resource.key, old.key, obj)
        return Written(record)

    def finalize_namespace(self, name: str) -> None:
        """Remove an emptied namespace (the namespace controller's last step)."""
        resource = self.catalogue.type(*NAMESPACES)
        self._remove(resource, self.get(resource, "", name))

    def _remove(self, resource: ResourceType, old: Record) -> Record:
        if resource.key == SERVICES:
            self._service_ips.release(old.obj["spec"].get("clusterIP", ""))
        if resource.key == CRD_KEY:
            spec = old.obj["spec"]
            self.catalogue.drop((spec["group"], spec["names"]["plural"]))
        gone = self.store.delete(resource.key, old.key)
        return old if gone is None else gone

    def _require_namespace(self, resource: ResourceType, namespace: str, obj: Object) -> None:
        if not resource.namespaced:
            return
        record = self.store.get(NAMESPACES, ("", namespace))
        if record is None:
            raise errors.not_found(self.catalogue.type(*NAMESPACES), namespace)
        if record.obj["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)

    def _assign_service_ip(self, resource: ResourceType, obj: Object, *, dry_run: bool) -> None:
        spec = obj["spec"]
        if spec.get("type") == "ExternalName" or spec.get("clusterIP") == "None" or dry_run:
            return
        asked = spec.get("clusterIP")
        if not asked:
            spec["clusterIP"] = self._service_ips.take()
        elif not self._service_ips.claim(asked):
            why = "failed to allocate IP: provided IP is already allocated or not in the range"
            name = obj["metadata"]["name"]
            cause = invalid_cause("spec.clusterIPs", [asked], why)
            raise errors.invalid(resource, name, [cause])
        spec["clusterIPs"] = [spec["clusterIP"]]

    def read_scale(self, resource: ResourceType, namespace: str, name: str) -> Object:
        """GET of ``/scale``."""
        return scale.read(resource, self.get(resource, namespace, name).obj)

    def write_scale(
        self, resource: ResourceType, namespace: str, name: str, wanted: Object, options: Options
    ) -> Object:
        """PUT or patched state of ``/scale``: changes the replica count and nothing else."""
        old = self.get(resource, namespace, name)
        obj = scale.written(resource, patches.clone(old.obj), wanted)
        written = self._replace(resource, old, obj, options, [], "scale")
        return scale.read(resource, written.record.obj)


def _forget_nulls(resource: ResourceType, merged: Object) -> None:
    """Null is absent wherever the real server has a Go type: nowhere in a custom resource's own."""
    if resource.custom:
        structural.prune(merged["metadata"], resource.schema.child("metadata"))
    else:
        structural.prune(merged, resource.schema)
