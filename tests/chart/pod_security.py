"""The profile `restricted` of Kubernetes' Pod Security Standards, for pods without init containers."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod):
    found, own = [], pod.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            found.append(field)
    found += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if not VOLUMES & set(volume)]
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        inherits = lambda field: context.get(field, own.get(field))  # noqa: E731
        checks = {
            "privileged": not context.get("privileged"),
            "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": inherits("runAsNonRoot") is True,
            "runAsUser": inherits("runAsUser") != 0,
            "seccompProfile": (inherits("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost"),
            "capabilities.drop": "ALL" in context.get("capabilities", {}).get("drop", []),
            "capabilities.add": set(context.get("capabilities", {}).get("add", [])) <= {"NET_BIND_SERVICE"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        found += [f"{container['name']}: {name}" for name, good in checks.items() if not good]
    return found
