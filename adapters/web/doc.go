// Package web holds the two HTTP listeners: the public one, which vendors call, and the
// admin one, for people and monitoring. It limits and reads what comes in, asks the core
// by its ports, and writes what the core answers; it decides nothing about events.
//
// It imports the domain, the ports and libraries, never channels or the application.
package web
